"""Inspect and maintain an outbox: status, doctor, top, park, series, prune, …."""

from __future__ import annotations

import time
from argparse import SUPPRESS, ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from ...clusters import setup
from ...conf import settings
from ...exceptions import ConfigurationError, KafkaError, TableMissing
from ...models import ArchivedRecord, ProcessedMessage
from ...models.missing_tables import OutboxTables
from ...models.routing import outbox_database, require_committing
from ...observability.answer import Answer
from ...operations import leader
from ...operations.effective_settings import describe_settings, effective_settings
from ...operations.examination import LONGEST_STOP
from ...operations.finding_kinds import KINDS
from ...operations.grants import print_grants
from ...operations.offsets import rewind_topics
from ...operations.open_series import close_series, list_series
from ...wording import count, duration, printable
from .. import (
    dead_letter_verb,
    doctor_report,
    identity,
    live_verbs,
    pause_verbs,
    record_verbs,
    status,
)
from ..confirmation import confirm
from ..times import age

_ROLES: Final = ("app", "harvester", "consumer", "operator")


class Command(BaseCommand):
    """`manage.py outbox`: a verb is a method of its name, or its parser's `run`."""

    help = "Inspect and maintain the outbox: status, parked records, series, archive."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        shared = [_options_of_django(), _options_of_verbs()]
        verbs.add_parser(
            "status", help="show backlog, blocked and parked records", parents=shared
        )
        verbs.add_parser("leader", help="show which process leads now", parents=shared)
        for module in (record_verbs, pause_verbs, live_verbs):
            module.add_parsers(verbs, shared)
        dead_letter_verb.add_parser(verbs, shared)
        doctor = verbs.add_parser(
            "doctor", help="look for what can lose messages", parents=shared
        )
        doctor.add_argument(
            "--longest-stop",
            type=age,
            default=timedelta(seconds=LONGEST_STOP),
            metavar="AGE",
            help="how long a consumer may stop (default: 3d)",
        )
        doctor.add_argument(
            "--harvester", metavar="ROLE", default="", help="role that harvests"
        )
        doctor.add_argument(
            "--ignore",
            action="append",
            default=[],
            choices=[kind.name for kind in KINDS],
            metavar="NAME",
            help="leave out the findings of this name; may be repeated",
        )
        series = verbs.add_parser(
            "series", help="list, release or discard series", parents=shared
        )
        series.add_argument(
            "action", nargs="?", choices=("list", "release", "discard"), default="list"
        )
        series.add_argument("names", nargs="*", metavar="NAME")
        series.add_argument("--yes", action="store_true", help="do not ask")
        prune = verbs.add_parser(
            "prune", help="delete old rows of the archive table", parents=shared
        )
        prune.add_argument("--older-than", type=age, required=True, metavar="AGE")
        prune.add_argument(
            "--processed",
            action="store_true",
            help="delete old processed keys instead: their messages count as new again",
        )
        prune.add_argument("--yes", action="store_true", help="do not ask")
        rewind = verbs.add_parser(
            "rewind",
            help="make a consumer group read topics from the beginning",
            parents=shared,
        )
        rewind.add_argument("group", metavar="GROUP")
        rewind.add_argument("topics", nargs="+", metavar="TOPIC")
        roles = verbs.add_parser(
            "grants", help="print the minimal privileges as SQL", parents=shared
        )
        roles.add_argument("--app", metavar="ROLE", help="role that stashes")
        roles.add_argument("--harvester", metavar="ROLE", help="role that harvests")
        roles.add_argument("--consumer", metavar="ROLE", help="role that consumes")
        roles.add_argument("--operator", metavar="ROLE", help="role of this command")
        clusters = verbs.add_parser(
            "cluster", help="make this outbox one of several", parents=shared
        )
        clusters.add_argument("action", choices=("init",))
        clusters.add_argument(
            "--above", type=int, default=0, metavar="ID", help="use only higher ids"
        )
        instead = clusters.add_mutually_exclusive_group()
        instead.add_argument(
            "--check", action="store_true", help="only check whether it has run"
        )
        instead.add_argument("--dry-run", action="store_true", help="only print SQL")
        verbs.add_parser(
            "settings",
            help="every setting: its value, and where it comes from",
            parents=shared,
        )
        which = verbs.add_parser(
            "identity", help="show which outbox this is", parents=shared
        )
        which.add_argument(
            "--new",
            action="store_true",
            help="give it a new identity, when its database is a copy of another",
        )

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
                run = options.get("run") or getattr(self, options["verb"])
                run(alias, options, answer)
        except TableMissing as exc:
            raise CommandError(printable(str(exc))) from exc
        except DatabaseError as exc:
            reason = printable(str(exc).partition("\n")[0])
            raise CommandError(f"The database {alias!r} refused: {reason}") from exc

    def status(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Show backlog, blocked and parked records."""
        found = status.report(alias)
        answer.document |= found
        answer.say(*status.describe(found))

    def leader(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Show which process leads now."""
        try:
            found = leader.report(alias)
        except (ConfigurationError, KafkaError) as exc:
            raise CommandError(printable(str(exc))) from exc
        answer.document |= found
        if found["leader"] is None:
            raise CommandError(leader.complain(found))
        answer.say(*leader.describe(found))

    def doctor(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Look for what can lose messages, and say what cures it."""
        try:
            found = doctor_report.report(
                alias,
                longest_stop=options["longest_stop"].total_seconds(),
                role=options["harvester"],
                ignored=options["ignore"],
            )
        except ConfigurationError as exc:
            raise CommandError(printable(str(exc))) from exc
        answer.document |= found
        answer.say(*doctor_report.describe(answer.document))
        if found["errors"]:
            raise CommandError(f"The doctor found {doctor_report.conclude(found)}.")

    def series(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """List the open series, or close the named ones."""
        if options["action"] == "list":
            if options["names"]:
                raise CommandError(
                    "`series list` lists every open series: leave out the names, or "
                    "write `release` or `discard` before them."
                )
            list_series(alias, answer)
        else:
            if options["action"] == "discard" and options["names"]:
                confirm(
                    f"Drop the messages of {len(options['names'])} series for good?",
                    is_confirmed=options["yes"],
                )
            close_series(alias, options["action"], options["names"], answer)

    def prune(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Delete old rows of one table in chunks."""
        table = ProcessedMessage if options["processed"] else ArchivedRecord
        old = table.objects.using(alias).older_than(options["older_than"])
        confirm(
            f"Delete rows of {table._meta.db_table} older than "
            f"{duration(options['older_than'].total_seconds())} for good?",
            is_confirmed=options["yes"],
        )
        answer.document |= {"table": table._meta.db_table, "pruned": 0}
        began = time.monotonic()
        for deleted in old.prune():
            answer.document["pruned"] += deleted
            answer.say(f"{count(answer.document['pruned'], 'row')} pruned")
            answer.flush()
        # Others have become old enough meanwhile.
        since = options["older_than"] + timedelta(seconds=time.monotonic() - began + 1)
        if table.objects.using(alias).older_than(since).exists():
            raise CommandError("Rows are left: others may be pruning. Run this again.")

    def rewind(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Make a consumer group read topics from the beginning."""
        rewind_topics(alias, options["group"], options["topics"], answer)

    def identity(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Show which outbox this is, or give it a new identity."""
        if options["new"]:
            identity.renew(alias)
        found = identity.report(alias)
        answer.document |= found
        answer.say(*identity.describe(found))

    def settings(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Show the value of every setting, and where it comes from."""
        found = effective_settings(alias)
        answer.document["settings"] = found
        answer.say(*describe_settings(found))

    def grants(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Print the minimal privileges of the named roles."""
        roles = {name: options[name] for name in _ROLES}
        if not any(roles.values()):
            raise CommandError(f"Name a role: --{', --'.join(_ROLES)}.")
        print_grants(alias, answer, **roles)

    def cluster(self, alias: str, options: dict[str, Any], answer: Answer) -> None:
        """Set up the outbox for this cluster, or check whether it is."""
        if options["check"]:
            setup.check(alias, answer)
        elif options["dry_run"]:
            setup.print_init(alias, answer, above=options["above"])
        else:
            setup.init(alias, answer, above=options["above"])


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
