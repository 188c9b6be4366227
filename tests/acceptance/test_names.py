"""Two outboxes on one Kafka: each has its own leader, or one of them says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack

from ..machine import nightly
from ..processes import Process
from ..services import Topics, text_of
from ..waiting import eventually
from .conftest import environment_of
from .harvesters import Harvesters
from .tables import OutboxTable, Server

QUIET = {"ready", "leader_acquired", "meter_read"}
"""What a leader says that nobody disturbs."""

Project = Callable[..., tuple[OutboxTable, Harvesters]]


@pytest.fixture
def project(server: Server, services: Stack) -> Iterator[Project]:
    """Makes example projects, each with a database; names are the default's."""
    with ExitStack() as ends:

        def make(
            table: OutboxTable | None = None, **names: str
        ) -> tuple[OutboxTable, Harvesters]:
            table = table or server.create()
            ends.callback(server.drop, table)
            environment = environment_of(table, services.bootstrap_servers)
            del environment["OUTBOX_LEADER_TOPIC"], environment["OUTBOX_LEADER_GROUP"]
            harvesters = Harvesters(environment | names)
            return table, ends.enter_context(harvesters)

        yield make


def sources(topics: Topics, topic: str, count: int) -> list[str]:
    """The source that each message in a topic names."""
    messages = topics.read(topic, at_least=count)
    headers = [dict(message.headers() or []) for message in messages]
    return sorted(text_of(names["outbox-source"]) for names in headers)


def refusal(harvester: Process) -> str:
    """The one line with which it ended."""
    assert harvester.exit_code() == 2
    lines = [line for line in harvester.log if not line.startswith("{")]
    assert len(lines) == 1, harvester.report()
    assert not harvester.all("leader_acquired")
    return lines[0]


def test_two_outboxes_with_default_names_both_deliver(
    project: Project, topics: Topics, topic: str
) -> None:
    projects = [project(), project()]
    for table, harvesters in projects:
        table.insert(topic, "key")
        harvesters.start().wait_for("leader_acquired")
    for table, harvesters in projects:
        table.wait_until_empty()
        (leader,) = harvesters.all
        leader.terminate()
        assert leader.exit_code() == 0
    expected = sorted(f"outbox-leader-{table.identity}" for table, _ in projects)
    assert len(set(expected)) == 2
    assert sources(topics, topic, 2) == expected


@pytest.mark.parametrize(
    "settings",
    [
        ("OUTBOX_LEADER_GROUP",),
        ("OUTBOX_LEADER_TOPIC",),
        ("OUTBOX_LEADER_TOPIC", "OUTBOX_LEADER_GROUP"),
    ],
)
def test_the_second_of_two_outboxes_with_one_name_refuses(
    project: Project, topics: Topics, topic: str, settings: tuple[str, ...]
) -> None:
    names = dict.fromkeys(settings, f"shared-{uuid4()}")
    (one, first), (other, second) = project(**names), project(**names)
    leader = first.start()
    leader.wait_for("leader_acquired")

    line = refusal(second.start())

    assert "LEADER_TOPIC and LEADER_GROUP" in line
    assert one.identity in line
    assert other.identity in line
    one.insert(topic, "key")
    one.wait_until_empty()
    assert {event["event"] for event in leader.events} <= QUIET


def test_of_two_that_start_at_once_one_refuses(
    project: Project, topics: Topics, topic: str
) -> None:
    names = dict.fromkeys(("OUTBOX_LEADER_GROUP",), f"shared-{uuid4()}")
    projects = [project(**names), project(**names)]
    started = [harvesters.start() for _, harvesters in projects]
    eventually(
        lambda: any(not harvester.is_running for harvester in started),
        what=lambda: "\n".join(harvester.report() for harvester in started),
    )
    loser = next(n for n, harvester in enumerate(started) if not harvester.is_running)
    assert started[loser].exit_code() == 2
    (table, _), leader = projects[1 - loser], started[1 - loser]
    leader.wait_for("leader_acquired")
    table.insert(topic, "key")
    table.wait_until_empty()


def test_the_later_of_two_groups_that_share_a_topic_refuses(
    project: Project, topics: Topics, topic: str
) -> None:
    names = {"OUTBOX_LEADER_TOPIC": f"shared-{uuid4()}"}
    one, first = project(**names, OUTBOX_LEADER_GROUP=f"first-{uuid4()}")
    other, second = project(**names, OUTBOX_LEADER_GROUP=f"second-{uuid4()}")
    leader = first.start()
    acquired = leader.wait_for("leader_acquired")["boottime_ns"]
    # A leader stays when it is the older one by a heartbeat time-out.
    leader.wait_for("meter_read", after=acquired + 2_000_000_000)

    late = second.start()

    assert late.exit_code() == 2, late.report()
    assert any(one.identity in line and other.identity in line for line in late.log)
    one.insert(topic, "key")
    one.wait_until_empty()
    assert {event["event"] for event in leader.events} <= QUIET


def require_renewal(
    one: tuple[OutboxTable, Harvesters],
    copy: tuple[OutboxTable, Harvesters],
    topics: Topics,
    topic: str,
) -> None:
    """Check that a copy refuses until it has an identity of its own."""
    (original, first), (copied, second) = one, copy
    assert copied.identity == original.identity
    leader = first.start()
    leader.wait_for("leader_acquired")

    # After these two together it is certain that the leader's database has not moved.
    soon = {"OUTBOX_METER_INTERVAL": "1", "OUTBOX_DATABASE_DEADLINE": "4"}
    assert "manage.py outbox identity --new" in refusal(second.start(**soon))

    renewed = second.run("outbox", "identity", "--new")
    assert renewed.exit_code() == 0, renewed.report()
    assert copied.identity != original.identity
    copied.insert(topic, "key")
    second.start().wait_for("leader_acquired")
    copied.wait_until_empty()
    assert sources(topics, topic, 1) == [f"outbox-leader-{copied.identity}"]
    assert {event["event"] for event in leader.events} <= QUIET


def test_a_copy_refuses_until_it_has_an_identity_of_its_own(
    project: Project, server: Server, topics: Topics, topic: str
) -> None:
    original, first = project()
    copied, second = project(server.copy(original))
    require_renewal((original, first), (copied, second), topics, topic)


@nightly
def test_a_copied_schema_refuses_until_it_has_an_identity_of_its_own(
    project: Project, topics: Topics, topic: str
) -> None:
    original, first = project()
    original.execute("CREATE SCHEMA copied")
    copied, second = project(original.in_schema("copied"))
    migrated = second.run("migrate")
    assert migrated.exit_code() == 0, migrated.report()
    copied.execute(
        "UPDATE {identity} SET outbox = (SELECT outbox FROM public.outbox_identity)"
    )
    require_renewal((original, first), (copied, second), topics, topic)


def test_a_database_that_is_renamed_keeps_its_names(
    project: Project, server: Server, topics: Topics, topic: str
) -> None:
    table, harvesters = project()
    before = harvesters.run("outbox", "status")
    assert before.exit_code() == 0
    renamed, harvesters = project(server.rename(table))
    after = harvesters.run("outbox", "status")
    assert after.exit_code() == 0
    assert before.output[:2] == after.output[:2]
    name = f"outbox-leader-{renamed.identity}"
    assert f"leader   topic {name}, group {name}" in after.output


def test_a_database_that_is_away_at_the_start_is_led_when_it_comes(
    project: Project, server: Server, topics: Topics, topic: str
) -> None:
    absent = server.missing()
    table, harvesters = project(absent)
    waiting, stopped = harvesters.start(), harvesters.start()
    waiting.wait_for_log("does not exist")
    stopped.wait_for_log("does not exist")
    stopped.terminate()
    assert stopped.exit_code() == 0
    assert [event["event"] for event in stopped.events] == ["stopped"]

    server.create(name=absent.database)

    waiting.wait_for("leader_acquired")
    table.insert(topic, "key")
    table.wait_until_empty()
