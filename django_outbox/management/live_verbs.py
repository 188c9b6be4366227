"""The verbs of `manage.py outbox` that go on until they are interrupted: top, tail."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from ..conf import settings
from ..exceptions import ConfigurationError, KafkaError
from ..observability.presentation import live_console
from ..operations import leader, live_reading
from ..operations.tailing import Tail
from ..wording import local_time
from .answer import Answer
from .top_lines import Lines

TOP_INTERVAL: Final = 2.0
"""Seconds between two readings, by default."""
TAIL_INTERVAL: Final = 0.2
"""Seconds between two looks for new records."""


def add_parsers(verbs: Any, shared: Sequence[ArgumentParser]) -> None:
    """Add the options of these verbs."""
    top_options = verbs.add_parser(
        "top", help="watch leader, rates, backlog, blocked records", parents=shared
    )
    top_options.add_argument(
        "--interval",
        type=_seconds,
        default=TOP_INTERVAL,
        metavar="SECONDS",
        help="between two readings; default: %(default)s",
    )
    top_options.add_argument(
        "--count", type=_number, default=0, help="end after this number of readings"
    )
    tail_options = verbs.add_parser(
        "tail", help="print new records as they come", parents=shared
    )
    tail_options.add_argument("--topic", default="", help="only records of this topic")
    tail_options.add_argument(
        "--count", type=_number, default=0, help="end after this number of records"
    )
    top_options.set_defaults(run=top)
    tail_options.set_defaults(run=tail)


def top(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Show readings until somebody interrupts it."""
    window, left = live_reading.RateWindow(), options["count"]
    with _until_interrupted(), ExitStack() as stack:
        who = stack.enter_context(closing(_Leader(alias)))
        show = stack.enter_context(_display(answer))
        readings = _every(
            options["interval"], lambda: live_reading.read(alias), meanwhile=who.state
        )
        for reading in readings:
            rates = window.rates(reading)
            reading |= {
                "leader": who.state(),
                "rates": rates._asdict() if rates else None,
            }
            show(reading)
            left -= 1
            if left == 0:
                return


def tail(alias: str, options: dict[str, Any], answer: Answer) -> None:
    """Print new records until somebody interrupts it."""
    follower = Tail(alias, topic=options["topic"])
    if not settings.ARCHIVE:
        answer.say(
            "Without ARCHIVE, records that a leader sends within "
            f"{TAIL_INTERVAL:g} s may be missing here."
        )
        answer.flush()
    left = options["count"]
    with _until_interrupted():
        for found in _every(TAIL_INTERVAL, follower.look):
            for row in found:
                answer.stream(row, _line_of_record(row))
                left -= 1
                if left == 0:
                    return


def _line_of_record(row: dict[str, Any]) -> str:
    partition = row["kafka_partition"]
    where = row["kafka_topic"] + ("" if partition is None else f"/{partition}")
    created = row["create_time"]
    when = local_time(created) if created else "-"
    return f"{when}  record {row['id']} to {where}"


class _Leader:
    """The leader as far as this process can tell: it may have no access to Kafka."""

    def __init__(self, alias: str) -> None:
        self._watch: leader.LeaderWatch | None = None
        self._reason = ""
        try:
            self._watch = leader.LeaderWatch(alias)
        except (ConfigurationError, KafkaError) as exc:
            self._reason = str(exc)

    def state(self) -> dict[str, Any]:
        if self._watch is None:
            return {"leader": None, "reason": self._reason}
        return self._watch.state()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()


def _display(answer: Answer) -> Any:
    """Return what shows readings: the whole terminal, if it can be redrawn."""
    if not answer.is_json and (console := live_console()):
        # It needs rich, which is optional.
        from .top_screen import Screen

        return Screen(console)
    return Lines(answer)


def _every(
    interval: float,
    read: Callable[[], Any],
    *,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[Any]:
    """
    Yield readings at intervals, the first at once.

    Calls `meanwhile` every WATCH_INTERVAL until the next one.
    """
    while True:
        began = time.monotonic()
        yield read()
        while (left := began + interval - time.monotonic()) > 0:
            meanwhile()
            time.sleep(min(left, leader.WATCH_INTERVAL))


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """End in order with Ctrl-C, and when nobody reads the output any more."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} must be from 0.1 to 3600")
    return seconds


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ArgumentTypeError(
            f"{text!r} must be a whole number above 0, or 0 to go on until Ctrl-C"
        )
    return number
