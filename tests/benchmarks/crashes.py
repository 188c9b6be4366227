"""
What becomes of records when a relay is killed, stands still, loses Kafka, or is two.

Each side has a backlog, and something happens to it in the middle:

- *killed three times*: its process is killed with SIGKILL at each quarter, and a new
  one is started at once.
- *stands still*: its process is stopped for a while, a second one is started, as an
  orchestrator does, and then the first goes on where it was.
- *no Kafka*: the broker is killed, and started again after a while.
- *two at once*: two processes run from the beginning, as two replicas of a deployment
  do, and nobody harms them.

The topic is compared with the table then: records that are missing, that came more
than once, and whose first message came behind one of a later record of their key.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from confluent_kafka import Message

from django_outbox.devstack.service import Service

from ..services import Topics
from ..waiting import eventually
from .arrivals import row_id
from .debezium import DebeziumSide
from .packages.environment import PackagesError, ensure
from .packages.sides import all_sides, database
from .readings import Book
from .relays import DebeziumRelay, HarvesterRelay, Relay
from .session import Session
from .sides import HARVESTERS, PATIENCE, in_turn
from .workload import Workload, new_topic

NAME: Final = "crashes"
ROUNDS: Final = 3
"""At the most."""
KILLS: Final = 3
KEYS: Final = 100
STILL: Final = 20.0
"""Seconds that a process stands still: more than three of our sessions."""
AWAY: Final = 10.0
"""Seconds without a broker, and then those of its start."""

Harm: TypeAlias = Callable[[Relay], None]
"""Lets a relay send its backlog, and something happen to it meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a topic says of a backlog."""

    missing: int
    repeated: int
    """Messages beyond the first of each record."""
    out_of_order: int | None
    """None: its messages have no keys, and so no order."""


def run(session: Session) -> None:
    ours = map(HarvesterRelay, HARVESTERS)
    peers = [
        DebeziumRelay(peer) for peer in session.peers if isinstance(peer, DebeziumSide)
    ]
    compare(session, [*ours, *peers], session.scale.records)
    try:
        python = ensure(progress=print)
    except PackagesError as error:
        session.book.remark(f"Without other published packages: {error}")
        return
    with database() as url:
        compare(session, all_sides(python, url), session.scale.packages)


def compare(session: Session, relays: Sequence[Relay], records: int) -> None:
    """Let all cases happen to each relay in turn."""
    cases: dict[str, Harm] = {
        "killed three times": kill,
        "stands still": stand_still,
        "two at once": run_two,
    }
    if session.kafka is None:
        session.book.remark("`crashes`: the broker is not ours to kill.")
    else:
        cases["no Kafka"] = partial(take_kafka_away, session.kafka)

    def play_once(relay: Relay) -> None:
        workload = Workload(name=NAME, records=records, keys=KEYS)
        play(session.book, relay, workload, cases)

    in_turn(relays, min(session.rounds, ROUNDS), play_once)


def play(
    book: Book, relay: Relay, workload: Workload, cases: Mapping[str, Harm]
) -> None:
    """Let these cases happen to one relay; note what became of the records."""
    for case, harm in cases.items():
        if harm is run_two and not relay.can_be_two:
            continue
        topic = new_topic()
        with relay.filled(workload, topic):
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


def stand_still(relay: Relay) -> None:
    """Stop its process in the middle, start a second one, and let the first go on."""
    whole = relay.left()
    with ExitStack() as started:
        process = started.enter_context(relay.start())
        wait_until_left(relay, whole - whole // 4)
        process.pause()
        if relay.can_be_two:
            started.enter_context(relay.start())
        threading.Event().wait(STILL)
        process.resume()
        wait_until_left(relay, 0)


def take_kafka_away(kafka: Service, relay: Relay) -> None:
    """Kill the broker in the middle, and start it again after a while."""
    whole = relay.left()
    with relay.start():
        wait_until_left(relay, whole - whole // 4)
        kafka.kill()
        threading.Event().wait(AWAY)
        kafka.start()
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
