"""
How fast a standing backlog leaves the table, beside a naive relay.

    python -m tests.benchmarks.backlog --records 200000 --rounds 3
    python -m tests.benchmarks.backlog --delivery exactly-once --keys 1

Both sides run in turn in one session, on the same services, with the same
rows (200-byte values, one header, 1,000 keys, 10 partitions, acks=all):

- *harvester*: one `manage.py runharvester` process, from its leadership to the
  empty table; election and Python's start are not counted;
- *naive*: select a page, produce it, flush, delete it. What most outboxes do.
  It elects nobody, survives nothing and keeps no order after a failure.

Prints records each second for each round, their medians and ratio, the CPU
seconds of the harvester process and the machine's load, and checks that the
topic holds every record once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]

FILL = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values)
SELECT now(), %(topic)s, 'key-' || (n %% %(keys)s), repeat('x', 200),
       ARRAY['kind'], ARRAY['benchmark']
FROM generate_series(1, %(records)s) AS n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delivery", default="at-least-once")
    arguments = parser.parse_args()

    from django_outbox.devstack import devstack

    with devstack(progress=print) as stack:
        os.environ.update(stack.environment)
        os.environ["OUTBOX_DELIVERY"] = arguments.delivery
        manage("migrate", "--verbosity", "0")
        sides = {"harvester": harvester, "naive": naive}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(1, arguments.rounds + 1):
            for side, relay in sides.items():
                topic = f"bench-{uuid4()}"
                create_topic(topic)
                fill(topic, arguments.records, arguments.keys)
                seconds = relay()
                rate = arguments.records / seconds
                rates[side].append(rate)
                load = os.getloadavg()[0]
                print(f"round {number}  {side:<10} {rate:>9,.0f}/s  load {load:.1f}")
                if side == "naive" or arguments.delivery == "at-least-once":
                    check(topic, arguments.records)
                else:
                    check_committed(topic, arguments.records)
    medians = {side: statistics.median(values) for side, values in rates.items()}
    for side, median in medians.items():
        print(f"median   {side:<10} {median:>9,.0f}/s")
    print(f"harvester ÷ naive: {medians['harvester'] / medians['naive']:.2f}")


def manage(*arguments: str) -> None:
    command = [sys.executable, str(ROOT / "example_project/manage.py"), *arguments]
    subprocess.run(command, check=True)


def create_topic(name: str, *, partitions: int = 10) -> None:
    from tests.services import Topics

    Topics(os.environ["KAFKA_BOOTSTRAP_SERVERS"]).create(name, partitions=partitions)


def fill(topic: str, records: int, keys: int) -> None:
    """Put the backlog into an empty table, settled as after some time."""
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("TRUNCATE outbox")
        values = {"topic": topic, "keys": keys, "records": records}
        connection.execute(FILL, values)
        connection.execute("VACUUM ANALYZE outbox")
        connection.execute("CHECKPOINT")


def harvester() -> float:
    """Run one harvester until the table is empty; return seconds from acquire."""
    command = [
        sys.executable,
        str(ROOT / "example_project/manage.py"),
        *("runharvester", "--drain", "--log-format", "json"),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OUTBOX_LEADER_GROUP": f"bench-{uuid4()}"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    acquired = revoked = 0
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "leader_acquired":
            acquired = event["boottime_ns"]
        elif event["event"] == "leader_revoked":
            revoked = event["boottime_ns"]
    assert process.wait() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    print(f"         harvester process: {cpu:.1f} CPU seconds, start included")
    return (revoked - acquired) / 1e9


def naive() -> float:
    """Select, produce, flush, delete, page by page; return seconds."""
    import psycopg
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
        }
    )
    started = time.monotonic()
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while rows := connection.execute(
            "SELECT id, kafka_topic, kafka_key, kafka_value FROM outbox"
            " ORDER BY id LIMIT 1000"
        ).fetchall():
            for _, topic, key, value in rows:
                producer.produce(topic, value, key, headers=[("kind", "benchmark")])
            producer.flush()
            ids = [row[0] for row in rows]
            connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", [ids])
    return time.monotonic() - started


def check(topic: str, records: int) -> None:
    """Compare the topic's end offsets with what was stashed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "benchmark",
        }
    )
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, number))[1]
        for number in range(10)
    ]
    consumer.close()
    assert sum(ends) == records, f"{sum(ends)} messages for {records} records"


def check_committed(topic: str, records: int) -> None:
    """Count what a reader of committed records sees, each record once."""
    from tests.services import Topics

    topics = Topics(os.environ["KAFKA_BOOTSTRAP_SERVERS"])
    messages = topics.read(topic, timeout=120)
    ids = {dict(message.headers() or ())["outbox-id"] for message in messages}
    assert len(messages) == len(ids) == records, f"{len(messages)} for {records}"


if __name__ == "__main__":
    main()
