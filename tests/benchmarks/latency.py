"""
How long a committed record takes until a consumer sees it.

    python -m tests.benchmarks.latency --delivery exactly-once --rate 1000

Writers commit transactions of one row each; a consumer reads the topic as the
mode asks for (`read_committed` with exactly-once). Both live in this process,
so that one clock times them; the harvester is a process of its own. A record's
latency runs from the return of its commit to the consumer's poll that gives
it. Prints percentiles in milliseconds, the rate that was reached, the CPU of
the harvester and the machine's load.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from uuid import uuid4

from .backlog import ROOT, create_topic, fill, manage

WARM_UP = 20.0
"""Seconds whose records are not counted."""

WARM_UP_RECORDS = 300_000
"""Drained before: a broker that has just started has still to compile its code,
and takes several times as long for a transaction. No broker at work is that new."""

INSERT = """
INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value,
                    kafka_header_keys, kafka_header_values)
VALUES (now(), %s, %s, repeat('x', 200), ARRAY['kind'], ARRAY['benchmark'])
RETURNING id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--delivery", default="at-least-once")
    parser.add_argument("--rate", type=int, default=1000, help="records a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--writers", type=int, default=4)
    arguments = parser.parse_args()

    from django_outbox.devstack import devstack

    with devstack(progress=print) as stack:
        os.environ.update(stack.environment)
        os.environ["OUTBOX_DELIVERY"] = arguments.delivery
        os.environ["OUTBOX_LEADER_GROUP"] = f"bench-{uuid4()}"
        manage("migrate", "--verbosity", "0")
        topic = f"bench-{uuid4()}"
        create_topic(topic)
        warm = f"bench-{uuid4()}"
        create_topic(warm)
        fill(warm, WARM_UP_RECORDS, keys=1000)
        harvester = start_harvester()
        wait_until_empty()
        committed: dict[int, float] = {}
        seen: dict[int, float] = {}
        done = threading.Event()
        reader = threading.Thread(target=read, args=(topic, seen, done))
        reader.start()
        write(topic, committed, arguments)
        deadline = time.monotonic() + 30
        while len(seen) < len(committed) and time.monotonic() < deadline:
            done.wait(0.1)
        done.set()
        reader.join()
        harvester.terminate()
        harvester.wait()
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert seen.keys() == committed.keys(), f"{len(seen)} of {len(committed)} seen"
    began = min(committed.values())
    counted = {i: at for i, at in committed.items() if at >= began + WARM_UP}
    rate = len(counted) / (max(counted.values()) - min(counted.values()))
    delays = sorted(1000 * (seen[i] - at) for i, at in counted.items())
    for share in (0.5, 0.9, 0.99, 0.999):
        print(f"p{100 * share:<5g} {delays[int(share * len(delays))]:8.1f} ms")
    print(f"{len(delays):,} records at {rate:,.0f}/s, load {os.getloadavg()[0]:.1f}")
    print(f"harvester and migrate: {cpu.ru_utime + cpu.ru_stime:.1f} CPU seconds")


def start_harvester() -> subprocess.Popen[str]:
    command = [
        sys.executable,
        str(ROOT / "example_project/manage.py"),
        *("runharvester", "--log-format", "json"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "leader_acquired":
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process
    raise AssertionError("the harvester has ended")


def wait_until_empty() -> None:
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        while connection.execute("SELECT 1 FROM outbox LIMIT 1").fetchone():
            time.sleep(0.2)  # each question takes time from what is measured


def write(
    topic: str, committed: dict[int, float], arguments: argparse.Namespace
) -> None:
    """Commit at the rate for as long as asked, from several threads."""
    interval = arguments.writers / arguments.rate
    end = time.monotonic() + WARM_UP + arguments.seconds

    def work(number: int) -> None:
        import psycopg

        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            due = time.monotonic() + interval * number / arguments.writers
            count = 0
            while due < end:
                # The rate is what is asked for.
                time.sleep(max(0.0, due - time.monotonic()))
                key = f"key-{number}-{count % 250}"
                row = connection.execute(INSERT, [topic, key]).fetchone()
                assert row is not None
                committed[row[0]] = time.monotonic()
                count += 1
                due += interval

    threads = [
        threading.Thread(target=work, args=(number,))
        for number in range(arguments.writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read(topic: str, seen: dict[int, float], done: threading.Event) -> None:
    """Note when each record is first there."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"bench-{uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(10)])
    while not done.is_set():
        for message in consumer.consume(1000, 0.01):
            headers = dict(message.headers() or ())
            seen.setdefault(int(headers["outbox-id"]), time.monotonic())
    consumer.close()


if __name__ == "__main__":
    main()
