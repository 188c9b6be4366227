"""The verbs of `manage.py outbox` for single records: park, skip, release."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from ..operations import by_hand
from ..wording import count
from .answer import Answer
from .confirmation import confirm


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of these verbs."""
    park_options = verbs.add_parser(
        "park", help="take blocked records out of the way of their keys", parents=shared
    )
    park_options.add_argument(
        "ids", nargs="+", type=int, metavar="ID", help="as `status` lists them"
    )
    skip_options = verbs.add_parser(
        "skip",
        help="drop blocked records unsent: their messages are lost",
        parents=shared,
    )
    skip_options.add_argument(
        "ids", nargs="+", type=int, metavar="ID", help="as `status` lists them"
    )
    skip_options.add_argument(
        "--parked", action="store_true", help="the ids are those of parked records"
    )
    skip_options.add_argument("--yes", action="store_true", help="do not ask")
    release_options = verbs.add_parser(
        "release", help="move parked records back to the outbox", parents=shared
    )
    release_options.add_argument(
        "ids", nargs="*", type=int, metavar="PARKED_ID", help="as `status` lists it"
    )
    release_options.add_argument(
        "--all", action="store_true", help="all parked records"
    )
    park_options.set_defaults(run=park)
    skip_options.set_defaults(run=skip)
    release_options.set_defaults(run=release)


def park(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Move blocked records to the parked table, so that their keys go on."""
    outcome = by_hand.park(alias, options["ids"])
    answer.document |= {"parked": outcome.done, "wanted": outcome.wanted}
    answer.say(f"{count(outcome.done, 'record')} parked")
    if outcome.left:
        raise CommandError(
            f"{outcome.left} of {outcome.wanted} are not blocked: only records whose"
            " delivery has failed can be parked. `outbox status` lists them."
        )


def skip(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Drop records knowingly, after a question."""
    is_parked, ids = options["parked"], set(options["ids"])
    find = by_hand.parked_records if is_parked else by_hand.blocked_records
    found = find(alias, ids)
    answer.document |= {"skipped": 0, "wanted": len(ids), "rows": found}
    _require_all(len(found), len(ids), is_parked=is_parked)
    confirm(
        _question(len(found)),
        details=[
            f"{by_hand.failed_record(row)}: {by_hand.last_error(row)}" for row in found
        ],
        is_confirmed=options["yes"],
    )
    drop = by_hand.skip_parked if is_parked else by_hand.skip
    outcome = drop(alias, ids)
    answer.document["skipped"] = outcome.done
    answer.say(f"{count(outcome.done, 'record')} dropped")
    _require_all(outcome.done, outcome.wanted, is_parked=is_parked)


def release(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Move parked records back to the outbox."""
    ids = set(options["ids"])
    if bool(ids) == options["all"]:
        raise CommandError(
            "Give the ids of parked records, as `outbox status` lists them, or --all."
        )
    outcome = by_hand.release(alias, ids or "all")
    answer.document |= {"released": outcome.done, "wanted": outcome.wanted}
    answer.say(f"{count(outcome.done, 'record')} back in the outbox")
    if outcome.left:
        raise CommandError(
            f"{outcome.left} of {outcome.wanted} are not parked, or another row of "
            "the outbox has the id of their record."
        )


def _require_all(found: int, wanted: int, *, is_parked: bool) -> None:
    if found == wanted:
        return
    if is_parked:
        raise CommandError(f"{wanted - found} of {wanted} are not parked.")
    raise CommandError(
        f"{wanted - found} of {wanted} are not blocked: only records whose delivery"
        " has failed can be dropped. `outbox status` lists them."
    )


def _question(number: int) -> str:
    return (
        f"Drop {count(number, 'record')} for good? "
        f"{'Its message is' if number == 1 else 'Their messages are'} lost."
    )
