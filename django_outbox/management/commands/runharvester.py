"""The harvester process: relays the outbox to Kafka while it leads."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from ...conf import misnamed, settings
from ...events import Observer
from ...exceptions import ConfigurationError
from ...harvester.harvester import Harvester
from ...harvester.process import run
from ...observability.presentation import LEVELS
from ...settings.options import OutboxSettings


class Command(BaseCommand):
    """Parses the arguments, builds a harvester and runs it."""

    help = (
        "Harvest the outbox to Kafka. Start several: one leads, the others stand by"
        " and take over when it ends or fails. The first SIGTERM or SIGINT begins an"
        " orderly shutdown, a second one exits at once."
    )
    # Wrong settings are reported as one line with exit code 2, not as system checks.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--name", help="name of this process in logs and events (default: host-pid)"
        )
        parser.add_argument(
            "--database", metavar="ALIAS", help="database of the outbox to harvest"
        )
        parser.add_argument(
            "--solo",
            action="store_true",
            help="lead without an election, for development: never start two",
        )
        parser.add_argument(
            "--drain",
            action="store_true",
            help="harvest until the table is empty, show the progress, then exit",
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
            code = run(
                lambda observers, chosen: self._harvester(observers, chosen, options),
                settings.snapshot(),
                log_format=options["log_format"],
                level=LEVELS[options["verbosity"]],
                drain=options["drain"],
            )
        except (ConfigurationError, ImproperlyConfigured) as error:
            raise CommandError(f"{error}{misnamed()}", returncode=2) from error
        if code:
            raise SystemExit(code)

    def _harvester(
        self,
        observers: Sequence[Observer],
        chosen: OutboxSettings,
        options: dict[str, Any],
    ) -> Harvester:
        return Harvester(
            options=chosen,
            name=options["name"],
            database=options["database"],
            solo=options["solo"],
            observers=observers,
        )
