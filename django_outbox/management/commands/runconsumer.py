"""The consumer process: passes messages to the handlers of one group."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from ...conf import misnamed, settings
from ...consuming.consumer_process import Plan, run
from ...consuming.handlers import find_group
from ...exceptions import ConfigurationError, StaleOffset
from ...harvester.harvester import default_name
from ...idempotence.once import alias_for
from ...models.routing import require_committing
from ...observability.presentation import LEVELS
from ..times import past_moment


class Command(BaseCommand):
    """Parses the arguments and runs a consumer."""

    help = (
        "Pass the messages of Kafka topics to the handlers that @consumer declares,"
        " each message once. Start several: they share the partitions. The first"
        " SIGTERM or SIGINT begins an orderly shutdown, a second one exits at once."
    )
    # Wrong settings are reported as one line with exit code 2, not as system checks.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--group", help="consumer group; required when there are several"
        )
        parser.add_argument(
            "--name",
            help="unique name of this process in logs and events (default: host-pid)",
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="database of the handlers"
        )
        start = parser.add_mutually_exclusive_group()
        start.add_argument(
            "--from-beginning",
            action="store_true",
            help="read topics from the beginning; skip messages processed before",
        )
        start.add_argument(
            "--from-time",
            type=past_moment,
            metavar="TIME",
            help="the same, from the first messages at or after this time: a date and"
            " time with its zone, or an age such as 90m or 2d",
        )
        parser.add_argument(
            "--until-end",
            action="store_true",
            help="exit when all partitions have been read to their ends",
        )
        parser.add_argument(
            "--log-format",
            choices=("text", "json"),
            default="text",
            help="json: each event as one line on standard output, and the log as JSON"
            " on standard error",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            chosen = settings.snapshot()
            group, alias = find_group(options["group"]), alias_for(options["database"])
            plan = Plan(
                name=options["name"] or default_name(),
                group=group,
                # Handlers that only transform use no database.
                alias=alias if group.transforms else require_committing(alias),
                from_beginning=options["from_beginning"],
                from_time=options["from_time"],
                until_end=options["until_end"],
            )
            code = run(
                plan,
                chosen,
                log_format=options["log_format"],
                level=LEVELS[options["verbosity"]],
            )
        except (ConfigurationError, ImproperlyConfigured, StaleOffset) as error:
            raise CommandError(f"{error}{misnamed()}", returncode=2) from error
        if code:
            raise SystemExit(code)
