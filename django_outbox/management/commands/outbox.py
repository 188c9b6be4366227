"""Inspect and maintain an outbox: status, doctor, top, park, series, prune, …."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from ...conf import settings
from ...exceptions import ConfigurationError, TableMissing
from ...models.missing_tables import OutboxTables
from ...models.routing import outbox_database, require_committing
from ...wording import first_line, printable
from .. import (
    cluster_verb,
    dead_letter_verb,
    grants_verb,
    identity_verb,
    live_verbs,
    pause_verbs,
    prune_verb,
    record_verbs,
    report_verbs,
    rewind_verb,
    series_verb,
)
from ..answer import Answer

_VERBS: Final = (
    report_verbs,
    record_verbs,
    pause_verbs,
    live_verbs,
    dead_letter_verb,
    series_verb,
    prune_verb,
    rewind_verb,
    grants_verb,
    cluster_verb,
    identity_verb,
)


class Command(BaseCommand):
    """`manage.py outbox`: a verb is the function that its parser names as `run`."""

    help = "Inspect and maintain the outbox: status, parked records, series, archive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        shared = [_options_of_django(), _options_of_verbs()]
        for module in _VERBS:
            module.add_parsers(verbs, shared)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = outbox_database(options["database"] or settings.DATABASE)
        try:
            alias = require_committing(chosen)
        except ConfigurationError as exc:
            raise CommandError(str(exc)) from exc
        answer = Answer(
            self.stdout.write,
            is_json=options["json"],
            flush=self.stdout.flush,
            encoding=getattr(self.stdout, "encoding", None) or "utf-8",
            database=alias,
        )
        try:
            self._run(alias, options, answer)
        except CommandError as exc:
            # The answer has what was committed before the error.
            answer.document["error"] = str(exc)
            raise
        finally:
            answer.finish()

    def _run(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        try:
            with OutboxTables(alias):
                options["run"](alias, options, answer)
        except TableMissing as exc:
            raise CommandError(printable(str(exc))) from exc
        except DatabaseError as exc:
            reason = printable(first_line(exc))
            raise CommandError(f"The database {alias!r} refused: {reason}") from exc


def _options_of_verbs() -> ArgumentParser:
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--database", metavar="ALIAS", help="database of the outbox")
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on standard output"
    )
    return parser


def _options_of_django() -> ArgumentParser:
    """
    Return the options that every Django command has, for use after a subcommand.

    They have no defaults there, which would override options before the subcommand.
    """
    parser = BaseCommand().create_parser("manage.py", "outbox", add_help=False)
    for action in parser._actions:  # noqa: SLF001  # Django's call_command() reads it, too
        action.default = SUPPRESS
    return parser
