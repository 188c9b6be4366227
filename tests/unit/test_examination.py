"""The doctor's examination with services that answer, hide something, or are away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.exceptions import DatabaseUnavailable, KafkaUnavailable
from django_outbox.harvester import start_checks
from django_outbox.kafka.config import producer_config
from django_outbox.kafka.topic_facts import ClusterFacts, PartitionFacts, TopicFacts
from django_outbox.message.record import Identity
from django_outbox.operations.examination import Examination, Request, examine
from django_outbox.operations.finding import Finding
from django_outbox.operations.finding_kinds import (
    FSYNC,
    KINDS,
    NOT_EXAMINED,
    RETENTION,
    UNREACHABLE,
)
from django_outbox.postgres.database_facts import (
    DatabaseFacts,
    Privilege,
    ServerFacts,
    WaitingTopic,
)
from django_outbox.settings.options import OutboxSettings
from tests.waiting import eventually

IDENTITY = Identity("11111111-1111-4111-8111-111111111111", "1/2")
LEADERS = "outbox-leader-111111111111"
STRANGER = Heartbeat(
    node="stranger",
    nonce="x",
    sent_at=1.0,
    outbox="22222222-2222-4222-8222-222222222222",
    system="1/2",
)
SERVER = ServerFacts(
    is_standby=False,
    is_read_only=False,
    fsync=True,
    full_page_writes=True,
    synchronous_commit="on",
    synchronous_standby_names="",
    autovacuum=True,
    role="shop",
    sees_all_sessions=True,
)
SETTINGS = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
}


@dataclass
class FakeDatabase:
    """A database as it should be, or away."""

    facts: DatabaseFacts = field(default_factory=lambda: DatabaseFacts(server=SERVER))
    is_away: bool = False

    def identity(self) -> Identity | None:
        return IDENTITY

    def waiting(self) -> Sequence[WaitingTopic]:
        return self.facts.waiting

    def read(self, needed: Sequence[Privilege], *, role: str = "") -> DatabaseFacts:
        if self.is_away:
            raise DatabaseUnavailable
        return self.facts


@dataclass
class FakeKafka:
    """A Kafka whose topics are durable, or away."""

    missing: Collection[str] = ()
    heartbeats: Sequence[Heartbeat] = ()
    is_away: bool = False
    asked: list[str] = field(default_factory=list)

    def read(
        self, topics: Collection[str], *, measured: Collection[str] = ()
    ) -> ClusterFacts:
        if self.is_away:
            raise KafkaUnavailable
        self.asked = sorted(topics)
        partition = PartitionFacts(replicas=3, in_sync=3)
        found = {
            name: TopicFacts(name=name, partitions=[partition], settings=SETTINGS)
            if name not in self.missing
            else TopicFacts(name=name, exists=False)
            for name in topics
        }
        return ClusterFacts(servers="kafka:9092", brokers=3, settings={}, topics=found)

    def recent_heartbeats(
        self, options: OutboxSettings, *, within: float
    ) -> Sequence[Heartbeat]:
        assert options.leader_topic == LEADERS
        return self.heartbeats


def look(
    database: FakeDatabase | None = None,
    kafka: FakeKafka | None = None,
    **settings: Any,
) -> Examination:
    options = OutboxSettings(**settings)
    request = Request(options=options, producer=producer_config(options))
    return examine(request, database or FakeDatabase(), kafka or FakeKafka())


def names(found: Examination) -> list[str]:
    return [finding.kind.name for finding in found.findings]


def test_a_sound_outbox_has_no_findings() -> None:
    found = look()
    assert found.findings == []
    assert (found.has_database, found.brokers) == (True, 3)


def test_the_topics_of_waiting_records_are_examined_with_their_dead_letters() -> None:
    waiting = [WaitingTopic("orders", 2, 5.0), WaitingTopic("not a topic", 1, 5.0)]
    kafka = FakeKafka()
    look(
        FakeDatabase(DatabaseFacts(server=SERVER, waiting=waiting)),
        kafka,
        ALLOWED_TOPICS=("bills",),
        DELIVERY="exactly-once",
    )
    assert kafka.asked == [
        *("__consumer_offsets", "__transaction_state", "bills", "bills.dlt"),
        *("orders", "orders.dlt", LEADERS, f"{LEADERS}.ledger"),
    ]


def test_a_topic_that_nobody_creates_is_missing_and_dead_letters_are_not() -> None:
    kafka = FakeKafka(missing={"orders", "orders.dlt"})
    assert names(look(kafka=kafka, ALLOWED_TOPICS=("orders",))) == ["topic-missing"]


def test_a_ledger_topic_must_be_compacted() -> None:
    assert names(look(DELIVERY="exactly-once")) == ["ledger-cleanup"]


def test_another_outbox_in_the_leader_topic_is_found() -> None:
    assert names(look(kafka=FakeKafka(heartbeats=[STRANGER]))) == ["two-outboxes"]


def test_a_database_that_is_away_leaves_kafka_to_examine() -> None:
    found = look(FakeDatabase(is_away=True), ALLOWED_TOPICS=("orders",))
    assert names(found) == ["unreachable"]
    assert not found.has_database
    assert "orders" in found.topics


def test_a_kafka_that_is_away_leaves_the_database_to_examine() -> None:
    server = SERVER._replace(fsync=False)
    database = FakeDatabase(DatabaseFacts(server=server))
    found = look(database, FakeKafka(is_away=True))
    assert names(found) == ["fsync", "unreachable"]
    assert found.brokers == 0


def test_what_a_right_is_missing_for_is_said() -> None:
    facts = DatabaseFacts(server=SERVER, unseen={"tables": "permission denied"})
    (finding,) = look(FakeDatabase(facts)).findings
    assert finding.kind is NOT_EXAMINED
    assert (finding.subject, finding.seen) == ("database: tables", "permission denied")


def test_every_kind_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) > 30
    assert [kind.name for kind in KINDS if not kind.risk.endswith(".")] == []


def finding(
    kind: Any, subject: str = "topic orders", *, seen: str = "a value"
) -> Finding:
    return Finding(kind=kind, subject=subject, seen=seen, cure="a command")


def test_a_start_logs_one_line_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        start_checks.log_findings(
            [
                *(finding(RETENTION, f"topic {number}") for number in range(5)),
                finding(FSYNC, "database"),
                finding(UNREACHABLE),
                finding(NOT_EXAMINED),
            ]
        )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "Doctor found retention: topic 0 (a value) and 4 more. See"
            " docs/operations/doctor.md",
        ),
        (
            "WARNING",
            "Doctor found fsync: database (a value). See docs/operations/doctor.md",
        ),
        ("INFO", "Doctor could not examine topic orders"),
    ]


def test_a_start_asks_no_service_unless_topics_must_be_durable() -> None:
    harvester: Any = SimpleNamespace(options=OutboxSettings())
    assert start_checks.wait_until_durable(harvester, threading.Event())


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What each look of the doctor finds, or raises, in their order."""
    monkeypatch.setattr(start_checks, "START_DELAY", 0.0)
    monkeypatch.setattr(start_checks, "RETRY_INTERVAL", 0.0)
    outcomes: list[Any] = []

    def next_look(_: object) -> list[Finding]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    monkeypatch.setattr(start_checks, "_findings", next_look)
    yield outcomes
    assert outcomes == []


def run_doctor() -> None:
    with start_checks.examined(SimpleNamespace()):  # type: ignore[arg-type]
        eventually(
            lambda: "outbox-doctor" not in [t.name for t in threading.enumerate()],
            what="the end of the doctor",
        )


def test_a_start_looks_again_until_both_services_answer_and_logs_once(
    looks: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    looks += [
        [finding(FSYNC, seen="open for 11 min"), finding(UNREACHABLE)],
        [finding(FSYNC, seen="open for 12 min"), finding(UNREACHABLE)],
        [finding(FSYNC, seen="open for 13 min"), finding(RETENTION)],
    ]
    run_doctor()
    found = [record.finding for record in caplog.records]  # type: ignore[attr-defined]
    assert found == ["fsync", "retention"]


def test_a_fault_of_the_doctor_ends_only_the_doctor(
    looks: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    looks += [ZeroDivisionError()]
    run_doctor()
    assert [record.getMessage() for record in caplog.records] == ["Doctor failed"]
