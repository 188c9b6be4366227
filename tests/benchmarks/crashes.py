"""
What becomes of records when a relay is killed, and when two of them run.

Each side has a backlog. *Killed*: its process is killed with SIGKILL in the middle
of it, three times, and a new one is started at once. *Two at once*: two processes
run from the beginning, as two replicas of a deployment do, and nobody harms them.

The topic is compared with the table then: records that are missing, that came more
than once, and whose first message came behind one of a later record of their key.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import uuid4

from confluent_kafka import Message

from ..processes import Process
from ..services import Topics
from ..waiting import eventually
from .arrivals import row_id
from .packages.environment import PackagesError, ensure
from .packages.sides import all_sides, database
from .readings import Book
from .servers import connect
from .session import Session
from .sides import HARVESTERS, PATIENCE, HarvesterSide, in_turn
from .workload import Workload, empty, new_topic

NAME: Final = "crashes"
KILLED, TWO = "killed three times", "two at once"
ROUNDS: Final = 3
"""At the most."""
KILLS: Final = 3
KEYS: Final = 100


class Relay(Protocol):
    """A side whose processes can be killed."""

    @property
    def name(self) -> str:
        """As the tables have it."""

    def fill(self, workload: Workload, topic: str) -> None:
        """Put a backlog into the table."""

    def start(self) -> Process:
        """Start one process more."""

    def left(self) -> int:
        """Rows that have still to be sent."""


@dataclass(frozen=True, slots=True)
class HarvesterRelay:
    """Processes of `runharvester`, all in one group."""

    side: HarvesterSide
    group: str = field(default_factory=lambda: f"bench-{uuid4()}")

    @property
    def name(self) -> str:
        return self.side.name

    def fill(self, workload: Workload, topic: str) -> None:
        workload.fill(topic)

    def start(self) -> Process:
        return self.side.start(group=self.group)

    def left(self) -> int:
        with connect() as connection:
            rows = connection.execute("SELECT count(*) FROM outbox").fetchall()
        return int(rows[0][0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a topic says of a backlog."""

    missing: int
    repeated: int
    """Messages beyond the first of each record."""
    out_of_order: int | None
    """None: its messages have no keys, and so no order."""


def run(session: Session) -> None:
    compare(session, list(map(HarvesterRelay, HARVESTERS)), session.scale.records)
    try:
        python = ensure(progress=print)
    except PackagesError as error:
        session.book.remark(f"Without other published packages: {error}")
        return
    with database() as url:
        compare(session, all_sides(python, url), session.scale.packages)


def compare(session: Session, relays: Sequence[Relay], records: int) -> None:
    """Let both cases happen to each relay in turn."""

    def play_once(relay: Relay) -> None:
        play(session.book, relay, Workload(name=NAME, records=records, keys=KEYS))

    in_turn(relays, min(session.rounds, ROUNDS), play_once)


def play(book: Book, relay: Relay, workload: Workload) -> None:
    """Let both cases happen to one relay; note what became of the records."""
    for case, harm in ((KILLED, kill), (TWO, run_two)):
        topic = new_topic()
        relay.fill(workload, topic)
        began = time.monotonic()
        harm(relay)
        seconds = time.monotonic() - began
        messages = Topics(os.environ["KAFKA_BOOTSTRAP_SERVERS"]).read(topic)
        found = judge(messages, workload.records)
        for figure, value in (
            ("records", workload.records),
            ("missing", found.missing),
            ("repeated", found.repeated),
            ("out of order", found.out_of_order),
        ):
            if value is not None:
                book.note(NAME, case, relay.name, value, "messages", figure=figure)
        book.note(NAME, case, relay.name, seconds, "s", figure="until all were sent")
        empty()


def kill(relay: Relay) -> None:
    """Kill its process at each quarter of the backlog, and start another."""
    whole = relay.left()
    with ExitStack() as started:
        process = started.enter_context(relay.start())
        for number in range(1, KILLS + 1):
            wait_until_left(relay, whole - whole * number // (KILLS + 1))
            process.kill()
            process = started.enter_context(relay.start())
        wait_until_left(relay, 0)


def run_two(relay: Relay) -> None:
    """Run two of its processes."""
    with relay.start(), relay.start():
        wait_until_left(relay, 0)


def wait_until_left(relay: Relay, rows: int) -> None:
    """Return when no more rows than these are left."""
    eventually(
        lambda: relay.left() <= rows,
        timeout=PATIENCE,
        interval=0.005,
        what=f"{rows} rows left of {relay.name}",
    )


def judge(messages: Sequence[Message], records: int) -> Outcome:
    """
    Compare a topic, read to its end, with a backlog.

    Args:
        messages: In the order of each partition.
        records: How many there were; the ids of a key's records ascend.
    """
    first: dict[int, None] = {}
    newest: defaultdict[bytes, int] = defaultdict(int)
    out_of_order = 0
    for message in messages:
        id, key = row_id(message), message.key()
        assert id >= 0, message.value()
        if id in first:
            continue
        first[id] = None
        if key is not None:
            out_of_order += id < newest[key]
            newest[key] = max(id, newest[key])
    return Outcome(
        missing=records - len(first),
        repeated=len(messages) - len(first),
        out_of_order=out_of_order if newest else None,
    )
