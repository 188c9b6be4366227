"""
Transactions that go on while a side relays, and a consumer that notes arrivals.

Each writer and the reader are processes of their own: threads of one process
would wait for each other's Python, and that would be measured. All clocks are
the machine's one `CLOCK_MONOTONIC`.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

from confluent_kafka import TopicPartition

from .arrivals import consumer, row_id
from .servers import connect
from .workload import PARTITIONS

PATIENCE: Final = 15.0
"""Seconds without any arrival after which what is missing is lost."""

_INSERT: Final = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values)
SELECT now(), %s, key, repeat('x', 200), '{}', '{}' FROM unnest(%s::text[]) AS key
RETURNING id
"""
_NOTIFY: Final = ", pg_notify('outbox', '')"
"""What `stash()` adds with NOTIFY."""

_spawn: Final = get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What writers do. Durations are seconds."""

    seconds: float
    rate: float
    """Transactions a second, of all writers together."""
    writers: int = 4
    keys: int = 1000
    batch: int = 1
    """Rows of one INSERT: a writer that is cheap leaves the machine to the relay."""
    rows: int = 1
    """INSERTs of one transaction, at most."""
    hold: float = 0.0
    """A transaction stays open between its rows and its commit, up to so long."""
    notifies: bool = False
    """Whether writers tell the harvester, as `stash()` does with NOTIFY."""


@dataclass(slots=True)
class Witness:
    """What was committed and what has arrived: seconds by id."""

    committed: dict[int, float] = field(default_factory=dict)
    seen: dict[int, float] = field(default_factory=dict)
    deliveries: int = 0
    cpu_seconds: float = 0.0
    """Of the writers and the reader: the load generator."""

    @property
    def lost(self) -> int:
        return len(self.committed.keys() - self.seen.keys())

    @property
    def repeats(self) -> int:
        return self.deliveries - len(self.seen)

    @property
    def phantoms(self) -> int:
        return len(self.seen.keys() - self.committed.keys())


@contextmanager
def watched(topic: str) -> Iterator[Witness]:
    """Note what arrives while the block runs, and until all of it has arrived."""
    witness = Witness()
    stop, ready = _spawn.Event(), _spawn.Event()
    count = _spawn.Value(ctypes.c_long, 0)
    ours, theirs = _spawn.Pipe(duplex=False)
    reader = _spawn.Process(
        target=_read, args=(topic, count, ready, stop, theirs), daemon=True
    )
    reader.start()
    assert ready.wait(60), "the reader does not start"
    try:
        yield witness
        pause, deadline, last = _spawn.Event(), time.monotonic() + PATIENCE, 0
        while count.value < len(witness.committed) and time.monotonic() < deadline:
            if count.value > last:
                last, deadline = count.value, time.monotonic() + PATIENCE
            pause.wait(0.1)
    finally:
        stop.set()
        witness.seen, witness.deliveries, used = ours.recv()
        witness.cpu_seconds += used
        reader.join()


def write(topic: str, traffic: Traffic, witness: Witness) -> None:
    """Write for as long as asked; note each commit's return."""
    pipes = []
    begin = time.monotonic() + 1.0
    for number in range(traffic.writers):
        ours, theirs = _spawn.Pipe(duplex=False)
        writer = _spawn.Process(
            target=_write, args=(topic, traffic, number, begin, theirs), daemon=True
        )
        writer.start()
        pipes.append((ours, writer))
    for ours, writer in pipes:
        committed, used = ours.recv()
        witness.committed.update(committed)
        witness.cpu_seconds += used
        writer.join()


def _write(
    topic: str, traffic: Traffic, number: int, begin: float, results: Connection
) -> None:
    """Be one writer."""
    committed: dict[int, float] = {}
    chance = random.Random(number)
    interval = traffic.writers / traffic.rate
    begin = max(begin, time.monotonic())
    due, count = begin + interval * number / traffic.writers, 0
    end = begin + traffic.seconds
    own_keys = max(1, traffic.keys // traffic.writers)
    used = time.process_time()
    with connect() as connection:
        # A server that is too slow gets fewer, not all of them later.
        while max(due, time.monotonic()) < end:
            time.sleep(max(0.0, due - time.monotonic()))  # the rate that is asked for
            drawn = range(count, count + traffic.batch)
            keys = [f"key-{number}-{n % own_keys}" for n in drawn]
            ids = _transact(connection, topic, keys, traffic, chance)
            committed.update(dict.fromkeys(ids, time.monotonic()))
            count += traffic.batch
            due += interval
    results.send((committed, time.process_time() - used))


def _transact(
    connection: Any,
    topic: str,
    keys: list[str],
    traffic: Traffic,
    chance: random.Random,
) -> list[int]:
    statement = _INSERT + _NOTIFY if traffic.notifies else _INSERT

    def insert() -> list[int]:
        return [row[0] for row in connection.execute(statement, [topic, keys])]

    if traffic.rows == 1 and not traffic.hold:
        return insert()
    with connection.transaction():
        ids = [id for _ in range(chance.randint(1, traffic.rows)) for id in insert()]
        hold = chance.random() ** 3 * traffic.hold
        time.sleep(hold)  # the subject: others draw ids and commit meanwhile
    return ids


def _read(topic: str, count: Any, ready: Any, stop: Any, results: Connection) -> None:
    """Note when each record is first there; be the reader."""
    seen: dict[int, float] = {}
    copies: Counter[str] = Counter()
    with consumer(**{"fetch.wait.max.ms": 10}) as opened:
        opened.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        opened.poll(0.5)
        used = time.process_time()
        ready.set()
        while not stop.is_set():
            # One by one: a batch would be waited for.
            message = opened.poll(0.05)
            if message is None or message.error() is not None:
                continue
            if (id := row_id(message)) >= 0:
                seen.setdefault(id, time.monotonic())
                copies["deliveries"] += 1
                count.value = len(seen)
    used = time.process_time() - used
    results.send((seen, copies["deliveries"], used))
