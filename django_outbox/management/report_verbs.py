"""The verbs of `manage.py outbox` that only look: status, leader, settings, doctor."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from ..exceptions import ConfigurationError, KafkaError
from ..operations import leader as leaders
from ..operations.effective_settings import describe_settings, effective_settings
from ..operations.examination import LONGEST_STOP
from ..operations.finding_kinds import KINDS
from ..wording import printable
from . import doctor_report
from . import status as outbox_status
from .answer import Answer
from .times import age, given_age


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of these verbs."""
    for run, words in (
        (status, "show backlog, blocked and parked records"),
        (leader, "show which process leads now"),
        (settings, "every setting: its value, and where it comes from"),
    ):
        options = verbs.add_parser(run.__name__, help=words, parents=shared)
        options.set_defaults(run=run)
    options = verbs.add_parser(
        "doctor", help="look for what can lose messages", parents=shared
    )
    options.add_argument(
        "--longest-stop",
        type=age,
        default=timedelta(seconds=LONGEST_STOP),
        metavar="AGE",
        help="how long a consumer may stop (default: 3d)",
    )
    options.add_argument(
        "--harvester", metavar="ROLE", default="", help="role that harvests"
    )
    options.add_argument(
        "--ignore",
        action="append",
        default=[],
        choices=[kind.name for kind in KINDS],
        metavar="NAME",
        help="leave out the findings of this name; may be repeated",
    )
    options.set_defaults(run=doctor)


def status(alias: str, _options: dict[str, Any], answer: Answer) -> None:
    """Show backlog, blocked and parked records."""
    found = outbox_status.report(alias)
    answer.document |= found
    answer.say(*outbox_status.describe(found))


def leader(alias: str, _options: dict[str, Any], answer: Answer) -> None:
    """Show which process leads now."""
    try:
        found = leaders.report(alias)
    except (ConfigurationError, KafkaError) as exc:
        raise CommandError(printable(str(exc))) from exc
    answer.document |= found
    if found["leader"] is None:
        raise CommandError(leaders.complain(found))
    answer.say(*leaders.describe(found))


def settings(alias: str, _options: dict[str, Any], answer: Answer) -> None:
    """Show the value of every setting, and where it comes from."""
    found = effective_settings(alias)
    answer.document["settings"] = found
    answer.say(*describe_settings(found))


def doctor(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Look for what can lose messages, and say what cures it."""
    try:
        found = doctor_report.report(
            alias,
            longest_stop=given_age(options["longest_stop"]).total_seconds(),
            role=options["harvester"],
            ignored=options["ignore"],
        )
    except ConfigurationError as exc:
        raise CommandError(printable(str(exc))) from exc
    answer.document |= found
    answer.say(*doctor_report.describe(answer.document))
    if found["errors"]:
        raise CommandError(f"The doctor found {doctor_report.conclude(found)}.")
