"""
What `runconsumer` costs a handler, beside a loop that is written by hand.

Both handle the same messages, each in a transaction of its own that claims the
message's id and inserts one row, and send offsets to Kafka every half second. In
batches, a hundred messages share a transaction.
A rate counts from the first row to the last, by the database's clock, so that
neither Python's start nor the group's first rebalance is in it.
"""

from __future__ import annotations

import sys
from typing import Final
from uuid import uuid4

from ..acceptance.tables import project_environment
from ..processes import ROOT, Process
from .naive import producer
from .servers import connect
from .session import Session
from .sides import PATIENCE
from .workload import new_topic

NAME = "consumers"
CASE = "one INSERT a message"
OURS, BATCHED, BY_HAND = "runconsumer", "runconsumer, batch=100", "by hand"

_TABLES: Final = """
DROP TABLE IF EXISTS bench_effects, bench_processed;
CREATE TABLE bench_effects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text, value text,
    at timestamptz DEFAULT clock_timestamp()
);
CREATE TABLE bench_processed (
    consumer text, key text, at timestamptz DEFAULT now(), response jsonb,
    PRIMARY KEY (consumer, key)
);
"""
_RATE: Final = """
SELECT count(*), (count(*) - 1) / extract(epoch FROM max(at) - min(at))::float
FROM bench_effects
"""


_PROJECT: Final = "tests.benchmarks.consuming"
_COMMAND: Final = ("django", "runconsumer", "--until-end", "--log-format", "json")
SIDES: Final = {
    OURS: _COMMAND,
    BATCHED: _COMMAND,
    BY_HAND: (f"{_PROJECT}.by_hand",),
}
"""The module that each runs, with its arguments."""


def run(session: Session) -> None:
    for number in range(session.rounds):
        print(f" round {number + 1} of {session.rounds}")
        topic = fill(session.scale.messages)
        for side in SIDES:
            rate = consume(side, topic, session.scale.messages)
            session.book.note(NAME, CASE, side, rate, "messages/s")
    with connect() as connection:
        connection.execute("TRUNCATE bench_effects, bench_processed, outbox_processed")


def fill(messages: int) -> str:
    """Make a topic with so many messages of different ids."""
    topic, client = new_topic(), producer()
    for number in range(messages):
        client.produce(
            *(topic, "x" * 200, f"key-{number % 1000}"),
            headers={"outbox-message-id": str(uuid4())},
        )
    assert client.flush(120) == 0
    return topic


def consume(side: str, topic: str, messages: int) -> float:
    """Let one side consume the topic to its end; return messages a second."""
    with connect() as connection:
        connection.execute(_TABLES)
    environment = {
        **project_environment(),
        "DJANGO_SETTINGS_MODULE": f"{_PROJECT}.settings",
        "PYTHONPATH": str(ROOT),
        "BENCH_TOPIC": topic,
        "BENCH_GROUP": f"bench-{uuid4()}",
        "BENCH_BATCH": "100" if side == BATCHED else "1",
    }
    command = [sys.executable, "-m", *SIDES[side]]
    with Process(side, command, environment) as process:
        assert process.exit_code(PATIENCE) == 0, process.report()
    with connect() as connection:
        row = connection.execute(_RATE).fetchone()
    count, rate = row or (0, 0.0)
    assert count == messages, count
    return float(rate)
