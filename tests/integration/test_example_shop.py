"""The example project, as an operator runs it: `manage.py` in processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Message

from django_outbox.devstack import Stack
from tests.acceptance.harvesters import Harvesters
from tests.acceptance.tables import Server
from tests.machine import nightly
from tests.processes import manage
from tests.services import Topics
from tests.waiting import eventually


class Example:
    """The example project with a database of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.workers = Harvesters(environment)

    def manage(self, *arguments: str) -> str:
        """Run a command to its end; return what it printed."""
        return manage(*arguments, environment=self.environment)

    def place(self, count: int) -> None:
        """Place orders, each in a transaction of its own."""
        code = (
            "from shop import orders\n"
            f"for number in range({count}):\n"
            "    orders.place(customer=f'c{number % 5}', sku='TEA', quantity=1,"
            " amount=number)"
        )
        self.manage("shell", "--no-imports", "-c", code)

    def invoices(self) -> list[str]:
        """The leader ids of the invoices, in the order in which they were written."""
        with psycopg.connect(self.environment["DATABASE_URL"]) as connection:
            rows = connection.execute(
                "SELECT leader_id FROM billing_invoice ORDER BY id"
            )
            return [str(leader_id) for (leader_id,) in rows]


@pytest.fixture(scope="module")
def server(services: Stack) -> Iterator[Server]:
    """The session's PostgreSQL, with a migrated database to copy."""
    server = Server(services.database_url)
    yield server
    server.close()


@pytest.fixture
def example(services: Stack, server: Server, topics: Topics) -> Iterator[Example]:
    """The migrated example, whose leader topic and group nobody else has."""
    leader, shop = topics.create(), server.create()
    example = Example(
        {
            **os.environ,
            # pytest-django has put the tests' own there.
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": shop.url,
            "KAFKA_BOOTSTRAP_SERVERS": services.bootstrap_servers,
            "OUTBOX_LEADER_TOPIC": leader,
            "OUTBOX_LEADER_GROUP": leader,
            "BILLING_INTERVAL": "0.05",
        }
    )
    with example.workers:
        yield example
    server.drop(shop)


def test_the_examples_own_tests_pass(example: Example) -> None:
    assert "OK" in example.manage("test", "shop", "billing", "--noinput", "--shuffle")


def test_the_examples_lake_is_the_leaders(example: Example, tmp_path: Path) -> None:
    lake = {"OUTBOX_PIPELINE_LAKE": str(tmp_path), "OUTBOX_PIPELINE_TOPICS": "orders"}
    with_lake = Example({**example.environment, **lake})
    assert "OK" in with_lake.manage("test", "lake", "--noinput")


def test_the_examples_migrations_and_checks_are_complete(example: Example) -> None:
    example.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in example.manage("check", "--database", "default")


def test_an_order_arrives_in_both_topics(example: Example, topics: Topics) -> None:
    example.place(3)
    example.manage("runharvester", "--drain", "--verbosity", "0")
    outbox = example.environment["OUTBOX_LEADER_GROUP"]
    ours = [
        (message.topic(), key(message), json.loads(message.value() or b""))
        for message in topics.read("orders", "order-audit")
        if ("outbox-source", outbox.encode()) in (message.headers() or [])
    ]
    assert {(topic, key, value["order"]) for topic, key, value in ours} == {
        ("orders", "1", 1),
        ("orders", "2", 2),
        ("orders", "3", 3),
        ("order-audit", "c0", 1),
        ("order-audit", "c1", 2),
        ("order-audit", "c2", 3),
    }


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=nightly), signal.SIGKILL]
)
def test_invoices_are_written_by_one_leader_after_the_other(
    example: Example, how: signal.Signals
) -> None:
    """However the first one ends, and while orders keep coming."""
    first = example.workers.start(name="first")
    former = first.wait_for("leader_acquired")["leader_id"]
    second = example.workers.start(name="second")
    second.wait_for("ready")
    example.place(60)
    eventually(lambda: len(example.invoices()) == 60)

    first.signal(how)
    code = first.exit_code()
    example.place(60)
    present = second.wait_for("leader_acquired")["leader_id"]
    eventually(lambda: len(example.invoices()) == 120)

    assert code == (0 if how == signal.SIGTERM else -how)
    # In groups: neither wrote between two invoices of the other.
    writers = [leader_id for leader_id, _ in groupby(example.invoices())]
    assert writers == [former, present]


@nightly
def test_a_leader_that_was_frozen_writes_no_invoice_after_its_successors(
    example: Example,
) -> None:
    first = example.workers.start(name="first")
    former = first.wait_for("leader_acquired")["leader_id"]
    second = example.workers.start(name="second")
    second.wait_for("ready")
    example.place(20)
    eventually(lambda: len(example.invoices()) == 20)

    first.pause()
    present = second.wait_for("leader_acquired")["leader_id"]
    example.place(20)
    eventually(lambda: len(example.invoices()) == 40)
    first.resume()
    example.place(20)
    assert first.wait_for("leader_fenced")["leader_id"] == former
    example.place(20)
    eventually(lambda: len(example.invoices()) == 80)

    writers = [leader_id for leader_id, _ in groupby(example.invoices())]
    assert writers == [former, present]


def key(message: Message) -> str:
    return (message.key() or b"").decode()
