"""`OFFSETS = "database"` and topics that are not what they were."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ..processes import Process
from ..services import Topics
from ..waiting import eventually
from .test_consumers import Consumers, send


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create()


@pytest.fixture
def testapp(
    child_environment: dict[str, str], tmp_path: Path, topic: str
) -> dict[str, str]:
    return {
        **child_environment,
        "DJANGO_SETTINGS_MODULE": "tests.consumer_settings",
        "TESTAPP_GROUP": f"group-{uuid4()}",
        "TESTAPP_MARKS": str(tmp_path),
        "TESTAPP_OFFSETS": "database",
        "TESTAPP_TOPIC": topic,
    }


@pytest.fixture
def consumers(testapp: dict[str, str]) -> Iterator[Consumers]:
    with Consumers(testapp) as consumers:
        yield consumers


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


def create_again(admin: AdminClient, topics: Topics, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(15)
    eventually(
        lambda: topic not in admin.list_topics(timeout=15).topics,
        what="the topic is gone",
    )
    topics.create(topic)


def run_to_end(consumers: Consumers, *arguments: str) -> Process:
    process = consumers.start("--until-end", *arguments)
    assert process.exit_code() == 0
    return process


def refusal(consumers: Consumers) -> str:
    """What a consumer says that ends at once."""
    process = consumers.start("--until-end")
    assert process.exit_code() == 2
    (line,) = [line for line in process.log if line.startswith("CommandError")]
    return line


def effects(postgres: psycopg.Connection) -> list[str]:
    rows = postgres.execute("SELECT text FROM testapp_effect ORDER BY id").fetchall()
    return [text for (text,) in rows]


def test_a_topic_that_was_created_again_is_refused_until_it_is_rewound(
    consumers: Consumers,
    testapp: dict[str, str],
    topics: Topics,
    topic: str,
    admin: AdminClient,
    postgres: psycopg.Connection,
) -> None:
    """As long as the old one: only Kafka's id of it shows the difference."""
    send(topics.servers, topic, [f"old {n}" for n in range(10)])
    run_to_end(consumers)
    create_again(admin, topics, topic)
    new = [f"new {n}" for n in range(10)]
    send(topics.servers, topic, new)
    line = refusal(consumers)
    assert f"offset 10 of {topic}/0" in line
    cure = f"manage.py outbox rewind {testapp['TESTAPP_GROUP']} {topic}"
    assert line.endswith(f"python {cure}")
    assert len(effects(postgres)) == 10
    arguments = cure.split()[1:]
    subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        env=testapp,
        check=True,
    )
    run_to_end(consumers)
    assert effects(postgres)[10:] == new


def test_a_topic_that_is_created_again_under_a_consumer_ends_it(
    consumers: Consumers,
    topics: Topics,
    topic: str,
    admin: AdminClient,
    postgres: psycopg.Connection,
) -> None:
    send(topics.servers, topic, [f"old {n}" for n in range(10)])
    process = consumers.start()
    eventually(lambda: len(effects(postgres)) == 10, what="effects")
    create_again(admin, topics, topic)
    send(topics.servers, topic, [f"new {n}" for n in range(3)])
    assert process.exit_code() == 2
    process.wait_for_log(f"manage.py outbox rewind {process.all('ready')[0]['group']}")
    run_to_end(consumers, "--from-beginning")
    assert effects(postgres)[10:] == ["new 0", "new 1", "new 2"]


def test_what_a_restored_database_has_lost_is_read_again(
    consumers: Consumers, topics: Topics, topic: str, postgres: psycopg.Connection
) -> None:
    send(topics.servers, topic, [str(n) for n in range(10)])
    process = consumers.start()
    eventually(lambda: len(effects(postgres)) == 10, what="effects")
    with postgres.transaction():
        postgres.execute("UPDATE outbox_offsets SET next_offset = 6")
        postgres.execute("DELETE FROM outbox_processed")
        postgres.execute("DELETE FROM testapp_effect WHERE text::int >= 6")
    assert process.exit_code() == 1
    process.wait_for_log("The next start of this process reads on from there")
    run_to_end(consumers)
    assert effects(postgres) == [str(n) for n in range(10)]


def test_messages_that_were_deleted_before_they_were_read_are_no_secret(
    consumers: Consumers,
    topics: Topics,
    topic: str,
    admin: AdminClient,
    postgres: psycopg.Connection,
) -> None:
    send(topics.servers, topic, [f"old {n}" for n in range(10)])
    run_to_end(consumers)
    send(topics.servers, topic, [f"new {n}" for n in range(10)])
    delete_below(admin, topic, 15)
    line = refusal(consumers)
    assert f"offset 10 of {topic}/0, but the partition begins at 15" in line
    run_to_end(consumers, "--from-beginning")
    assert effects(postgres)[10:] == [f"new {n}" for n in range(5, 10)]


def test_marks_of_transactions_that_were_deleted_are_no_loss(
    consumers: Consumers, topics: Topics, topic: str, admin: AdminClient
) -> None:
    """Behind the last message there is always the mark of its commit."""
    transactional_id = f"test-{uuid4()}"
    producer = Producer(
        {"bootstrap.servers": topics.servers, "transactional.id": transactional_id}
    )
    producer.init_transactions(15)
    producer.begin_transaction()
    producer.produce(topic, "1", "k")
    producer.commit_transaction(15)
    run_to_end(consumers)
    delete_below(admin, topic, 2)
    run_to_end(consumers)


def delete_below(admin: AdminClient, topic: str, offset: int) -> None:
    below = TopicPartition(topic, 0, offset)
    (done,) = admin.delete_records([below]).values()
    assert done.result(15).low_watermark == offset
