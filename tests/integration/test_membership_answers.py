"""
What a member of the leader group does until Kafka answers, and when it does not.

librdkafka's own broker keeps the group. It cannot say who is in it, so the tests do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, NoReturn

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException
from confluent_kafka import KafkaError as DriverError

from django_outbox.election.ports import Heartbeat, JoinLater
from django_outbox.exceptions import KafkaUnavailable, OutOfResources
from django_outbox.kafka import join_gate, lookout, membership, watch
from django_outbox.kafka.clients import make
from django_outbox.kafka.group_members import client_id
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.message.record import Identity
from django_outbox.settings.options import OutboxSettings
from tests.contracts.groups import Recorder
from tests.fakes.timeline import Timeline
from tests.waiting import eventually

from .mockbroker import MockBroker

SHARDS = 2
ONE = client_id("a", SHARDS)
"""The only member."""

OUTBOX = "3f2a9c1b-7d4e-4f00-8000-000000000001"
BEFORE, AFTER = Identity(OUTBOX, "1/1/1"), Identity(OUTBOX, "2/2/2")
"""One outbox, whose database moves."""


class Member(NamedTuple):
    """As a description of the group has it."""

    client_id: str


class Description(NamedTuple):
    state: ConsumerGroupState
    members: list[Member]


class Questions:
    """Who is in the group: each question waits until the test has answered it."""

    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []
        self.answers: list[list[str]] = []
        """To the next questions."""

    def ask(self, *_: object) -> Future[Any]:
        self.asked.append(Future())
        if self.answers:
            self.answer(*self.answers.pop(0))
        return self.asked[-1]

    def answer(self, *members: str) -> None:
        state = ConsumerGroupState.STABLE if members else ConsumerGroupState.EMPTY
        self.asked[-1].set_result(Description(state, [Member(m) for m in members]))

    def refuse(self) -> None:
        refusal = KafkaException(DriverError(DriverError._TIMED_OUT))
        self.asked[-1].set_exception(refusal)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> Questions:
    """Find the group empty when the first process wants to join."""
    questions = Questions()
    questions.answers.append([])
    monkeypatch.setattr(join_gate, "ask_for_members", questions.ask)
    return questions


@pytest.fixture
def broker() -> MockBroker:
    return MockBroker()


def options_for(
    broker: MockBroker, monkeypatch: pytest.MonkeyPatch, *, shards: int
) -> OutboxSettings:
    broker.create("leaders", shards)
    monkeypatch.setattr(membership, "ensure_topic", lambda *_, **__: shards)
    monkeypatch.setattr(membership, "MIN_STAY", 0.0)
    return OutboxSettings(
        LEADER_TOPIC="leaders",
        LEADER_GROUP="leaders",
        SHARDS=shards,
        SESSION_TIMEOUT=3.0,
        HEARTBEAT_TIMEOUT=0.6,
        HEARTBEAT_INTERVAL=0.2,
        MAX_POLL_INTERVAL=8.0,
        KAFKA={"bootstrap.servers": broker.servers},
    )


@pytest.fixture
def member(
    broker: MockBroker, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafkaMembership]:
    """One that may own several shards; it has not joined."""
    member = KafkaMembership(options_for(broker, monkeypatch, shards=SHARDS), name="a")
    yield member
    member.leave()


def recorders() -> list[Recorder]:
    return [Recorder() for _ in range(SHARDS)]


def told(listeners: list[Recorder]) -> list[str]:
    return [word for listener in listeners for word in listener.told]


def poll_until(is_so: Callable[[], object], *members: KafkaMembership) -> None:
    def poll() -> None:
        for member in members:
            member.poll(0.02)

    eventually(is_so, meanwhile=poll)


def test_a_rebalance_makes_no_client(
    member: KafkaMembership, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the identity provider it could not, and the process would end."""
    listeners = recorders()
    made: list[object] = []

    def make_one(kind: Any, config: Any) -> object:
        if made:
            raise KafkaUnavailable
        made.append(kind)
        return make(kind, config)

    monkeypatch.setattr(join_gate, "make", make_one)
    member.join(*listeners)
    poll_until(lambda: len(questions.asked) == 2, member)
    questions.answer(ONE)
    poll_until(lambda: told(listeners) == ["assigned"] * SHARDS, member)


def test_who_may_lead_shards_makes_all_clients_before_it_joins(
    broker: MockBroker, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a callback for tokens, each keeps the heartbeats back for a second."""
    options = options_for(broker, monkeypatch, shards=SHARDS)
    member = KafkaMembership(options, identity=lambda: BEFORE)
    made: list[object] = []

    def make_one(kind: Any, config: Any) -> object:
        made.append(kind)
        return make(kind, config)

    for module in (join_gate, membership, watch):
        monkeypatch.setattr(module, "make", make_one)
    try:
        member.join(*recorders())
        before = [*made]
        poll_until(lambda: len(questions.asked) == 2, member)
        member.poll(0.05)
    finally:
        member.leave()
    assert made == before


def test_a_shard_is_owned_when_the_broker_has_told_who_is_in_the_group(
    member: KafkaMembership, questions: Questions
) -> None:
    """Until then it waits for nothing: it may lead other shards."""
    listeners = recorders()
    member.join(*listeners)
    poll_until(lambda: len(questions.asked) == 2, member)
    for _ in range(3):
        began = time.monotonic()
        member.poll(0.0)
        assert time.monotonic() - began < 0.5
    assert told(listeners) == []
    questions.refuse()
    poll_until(lambda: len(questions.asked) == 3, member)
    assert told(listeners) == []
    assert member.reason_to_rejoin is None

    questions.answer(ONE)
    poll_until(lambda: told(listeners) == ["assigned"] * SHARDS, member)
    assert member.reason_to_rejoin is None


def test_a_group_of_which_nothing_is_told_for_long_is_left(
    member: KafkaMembership, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_gate, "ANSWER_TIMEOUT", 0.2)
    listeners = recorders()
    member.join(*listeners)
    poll_until(lambda: member.reason_to_rejoin, member)
    assert "does not tell who is in the leader group" in (member.reason_to_rejoin or "")
    assert told(listeners) == []


def test_members_with_another_number_of_shards_keep_it_from_leading(
    member: KafkaMembership, questions: Questions
) -> None:
    listeners = recorders()
    member.join(*listeners)
    poll_until(lambda: len(questions.asked) == 2, member)
    questions.answer(ONE, client_id("b", 3))
    poll_until(lambda: member.reason_to_rejoin, member)
    member.poll(0.05)
    assert "processes with another number: b-shards-3" in (
        member.reason_to_rejoin or ""
    )
    assert told(listeners) == []


def test_an_error_while_it_leaves_closes_its_consumer(
    member: KafkaMembership, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Consumer] = []

    class Closing(Consumer):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def fail(_: float) -> NoReturn:
        raise OutOfResources

    monkeypatch.setattr(membership, "Consumer", Closing)
    member.join(*recorders())
    with monkeypatch.context() as patch:
        patch.setattr(membership, "MIN_STAY", 60.0)
        patch.setattr(member, "poll", fail)
        with pytest.raises(OutOfResources):
            member.leave()
    assert len(closed) == 1


def test_a_standby_follows_its_database_when_that_moves(
    broker: MockBroker, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader reads its identity now and then, a standby before it joins."""
    clock = Timeline()
    monkeypatch.setattr(lookout, "boottime", clock)
    options = options_for(broker, monkeypatch, shards=1)
    knows = {"leader": BEFORE, "standby": BEFORE}
    leader = KafkaMembership(options, name="a", identity=lambda: knows["leader"])
    standby = KafkaMembership(options, name="b", identity=lambda: knows["standby"])
    leads, follows = Recorder(), Recorder()
    questions.answers += [[], []]

    def lead() -> None:
        leader.send(Heartbeat(node="a", nonce="n", sent_at=1.0), 0)

    def poll_both_until(is_so: Callable[[], object]) -> None:
        def is_so_now() -> object:
            lead()
            return is_so()

        poll_until(is_so_now, leader, standby)

    def poll_both_for(seconds: float) -> None:
        end = time.monotonic() + seconds
        poll_both_until(lambda: time.monotonic() > end)

    def joins_again() -> bool:
        lead()
        leader.poll(0.02)
        try:
            standby.join(follows)
        except JoinLater:
            return False
        return True

    try:
        leader.join(leads)
        poll_until(lambda: leads.told, leader)
        standby.join(follows)
        poll_both_for(2 * options.HEARTBEAT_TIMEOUT)
        assert standby.reason_to_rejoin is None

        knows["leader"] = AFTER
        poll_both_until(lambda: standby.reason_to_rejoin)
        assert "the database has moved" in (standby.reason_to_rejoin or "")
        standby.leave()
        assert not joins_again()

        knows["standby"] = AFTER
        clock.advance(1.1 * options.SESSION_TIMEOUT)
        eventually(joins_again)
        poll_both_for(2 * options.HEARTBEAT_TIMEOUT)
        assert standby.reason_to_rejoin is None
        assert (leads.told, follows.told) == (["assigned"], [])
    finally:
        standby.leave()
        leader.leave()
