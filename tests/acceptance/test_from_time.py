"""`runconsumer --from-time`: topics are read from a moment on, and then go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer
from django.core.management import CommandError, call_command

from ..processes import Process
from ..services import Topics
from .test_consumers import Consumers

MINUTE = 60.0


@pytest.fixture
def topic(topics: Topics) -> str:
    """Both partitions have old messages, and one of them has newer ones, too."""
    topic = topics.create(partitions=2)
    send(topics, topic, ["oldest 0", "oldest 1"], age=240 * MINUTE)
    send(topics, topic, ["old 0"], age=90 * MINUTE)
    send(topics, topic, ["new 0", "newer 0"], age=10 * MINUTE)
    return topic


@pytest.fixture
def consumers(
    request: pytest.FixtureRequest,
    child_environment: dict[str, str],
    tmp_path: Path,
    topic: str,
) -> Iterator[Consumers]:
    environment = {
        **child_environment,
        "TESTAPP_GROUP": f"group-{uuid4()}",
        "TESTAPP_MARKS": str(tmp_path),
        "TESTAPP_OFFSETS": request.param,
        "TESTAPP_TOPIC": topic,
    }
    with Consumers(environment) as consumers:
        yield consumers


def send(topics: Topics, topic: str, texts: list[str], *, age: float = 0.0) -> None:
    """Write messages of this age in seconds; each text ends with its partition."""
    producer = Producer({"bootstrap.servers": topics.servers})
    moment = int((time.time() - age) * 1000)
    for text in texts:
        producer.produce(topic, text, "k", int(text[-1]), timestamp=moment)
    assert producer.flush(15) == 0


def run(consumers: Consumers, *arguments: str) -> Process:
    process = consumers.start("--until-end", *arguments)
    assert process.exit_code() == 0
    return process


def effects(postgres: psycopg.Connection) -> Counter[str]:
    rows = postgres.execute("SELECT text FROM testapp_effect").fetchall()
    return Counter(text for (text,) in rows)


def iso(*, minutes_ago: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat()


both = pytest.mark.parametrize("consumers", ["kafka", "database"], indirect=True)


@both
def test_a_new_group_reads_from_a_moment_on_and_then_goes_on(
    consumers: Consumers, topics: Topics, topic: str, postgres: psycopg.Connection
) -> None:
    """A partition without so late a message starts at its end."""
    run(consumers, "--from-time", "60m")
    assert effects(postgres) == Counter(["new 0", "newer 0"])
    send(topics, topic, ["next 0", "next 1"])
    run(consumers)
    assert effects(postgres) == Counter(["new 0", "newer 0", "next 0", "next 1"])


@both
def test_a_group_reads_again_and_does_nothing_twice(
    consumers: Consumers, topics: Topics, topic: str, postgres: psycopg.Connection
) -> None:
    run(consumers, "--from-time", iso(minutes_ago=60))
    again = run(consumers, "--from-time", "2h")
    assert effects(postgres) == Counter(["old 0", "new 0", "newer 0"])
    last = again.all("consumer_read")[-1]
    assert (last["processed"], last["repeats"]) == (1, 2)
    assert run(consumers).all("consumer_read")[-1]["repeats"] == 0
    run(consumers, "--from-beginning")
    assert sum(effects(postgres).values()) == 5


@pytest.mark.parametrize("consumers", ["kafka"], indirect=True)
def test_a_moment_in_the_future_is_refused_in_one_line(consumers: Consumers) -> None:
    process = consumers.start("--from-time", "2999-01-01T00:00:00Z")
    assert process.exit_code() == 2
    process.wait_for_log(
        "argument --from-time: '2999-01-01T00:00:00Z' is in the future"
    )


def test_one_of_the_two_starts_has_to_be_chosen() -> None:
    with pytest.raises(CommandError, match="not allowed with argument"):
        call_command("runconsumer", "--from-beginning", "--from-time=2d")
