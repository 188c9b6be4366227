"""What only a real Kafka can show of joining: topics, groups, and their absence."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from django_outbox.election.ports import Heartbeat, JoinLater, Membership
from django_outbox.exceptions import KafkaUnavailable, TopicMissing, WrongOutbox
from django_outbox.kafka.config import consumer_config, watch_config
from django_outbox.kafka.heartbeats import encode
from django_outbox.kafka.join_gate import JoinGate
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.kafka.topics import (
    OwnTopic,
    ensure_topic,
    leader_topic,
    ledger_topic,
)
from django_outbox.kafka.watch import Watch
from django_outbox.message.record import Identity
from django_outbox.settings.options import OutboxSettings
from tests.contracts.groups import Group, KafkaGroup, Recorder
from tests.services import Topics
from tests.waiting import eventually

from .harvesting import has_assigned
from .joining import may_enter

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def config(bootstrap_servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap_servers}


@pytest.fixture
def name() -> str:
    """A topic or group that nobody else has."""
    return f"test-{uuid4()}"


def own_topic(name: str, partitions: int = 1) -> OwnTopic:
    return leader_topic(OutboxSettings(LEADER_TOPIC=name, SHARDS=partitions))


def test_a_missing_leader_topic_is_created(config: dict[str, Any], name: str) -> None:
    ensure_topic(config, own_topic(name, 2))
    ensure_topic(config, own_topic(name, 2))

    admin = AdminClient(config)
    assert len(admin.list_topics(name, timeout=5).topics[name].partitions) == 2
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = admin.describe_configs([resource])[resource].result(timeout=5)
    assert entries["retention.ms"].value == "3600000"
    assert entries["cleanup.policy"].value == "delete"


def test_a_missing_ledger_topic_is_created_compacted(
    config: dict[str, Any], name: str
) -> None:
    topic = ledger_topic(OutboxSettings(LEADER_TOPIC=name), 0)
    ensure_topic(config, topic)

    resource = ConfigResource(ResourceType.TOPIC, f"{name}.ledger")
    admin = AdminClient(config)
    entries = admin.describe_configs([resource])[resource].result(timeout=5)
    assert entries["cleanup.policy"].value == "compact"


def test_own_topics_get_the_replicas_of_the_settings(
    config: dict[str, Any], name: str
) -> None:
    options = OutboxSettings(
        LEADER_TOPIC=name, TOPIC_REPLICATION_FACTOR=1, TOPIC_MIN_INSYNC_REPLICAS=1
    )
    for topic in (leader_topic(options), ledger_topic(options, 0)):
        ensure_topic(config, topic)

        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        admin = AdminClient(config)
        entries = admin.describe_configs([resource])[resource].result(timeout=5)
        # Not the broker's default, which has the same value here.
        assert not entries["min.insync.replicas"].is_default


def test_more_replicas_than_brokers_are_refused_with_the_command(
    config: dict[str, Any], name: str
) -> None:
    options = OutboxSettings(LEADER_TOPIC=name, TOPIC_REPLICATION_FACTOR=3)
    with pytest.raises(TopicMissing, match=r"--partitions 1 --replication-factor 3 "):
        ensure_topic(config, leader_topic(options))


def test_a_topic_that_may_not_be_created_is_named_with_the_cure(
    config: dict[str, Any], name: str
) -> None:
    with pytest.raises(TopicMissing) as caught:
        ensure_topic(config, own_topic(name), may_create=False)

    assert str(caught.value) == (
        f"The leader topic '{name}' does not exist, and creating it is disabled "
        f"(CREATE_LEADER_TOPIC). Create it: kafka-topics.sh --bootstrap-server "
        f"{config['bootstrap.servers']} --create --topic {name} --partitions 1 "
        "--config cleanup.policy=delete --config retention.ms=3600000 "
        "--config segment.ms=3600000"
    )
    assert name not in AdminClient(config).list_topics(timeout=5).topics


def test_a_topic_with_too_few_partitions_is_named_with_the_cure(
    config: dict[str, Any], topics: Topics
) -> None:
    topic = topics.create(partitions=1)

    with pytest.raises(TopicMissing, match=r"--alter --topic .* --partitions 3"):
        ensure_topic(config, own_topic(topic, 3), may_create=False)


def test_a_topic_with_too_many_partitions_is_worth_a_warning(
    config: dict[str, Any], topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create(partitions=3)
    with caplog.at_level(logging.WARNING):
        ensure_topic(config, own_topic(topic, 1))

    assert "3 partitions but needs only 1" in caplog.text


def test_who_leaves_leads_no_more(
    config: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question to the client at that moment might wait for ever."""
    monkeypatch.setattr("django_outbox.kafka.membership.MIN_STAY", 0.0)
    options = OutboxSettings(LEADER_TOPIC=name, LEADER_GROUP=name, KAFKA=config)
    leader, follower = KafkaMembership(options), KafkaMembership(options)
    group, heir = Group(time.monotonic), Recorder()
    try:
        group.join_and_own(leader, Recorder())
        group.join(follower, heir, leader)
        leader.leave()
        admin = AdminClient(config)
        eventually(lambda: has_assigned(admin, options.leader_group))
    finally:
        leader.leave()
        follower.leave()
    assert heir.told == []


def test_a_topic_that_is_gone_is_a_reason_to_join_again(
    config: dict[str, Any], name: str
) -> None:
    """As on a cluster that came back empty; to join makes the topic again."""
    often = {"topic.metadata.refresh.interval.ms": 200}
    options = OutboxSettings(
        LEADER_TOPIC=name, LEADER_GROUP=name, KAFKA={**config, **often}
    )
    leader, follower = KafkaMembership(options), KafkaMembership(options)
    admin, group = AdminClient(config), Group(time.monotonic)
    try:
        group.join_and_own(leader, Recorder())
        group.join(follower, Recorder(), leader)
        assert follower.reason_to_rejoin is None
        admin.delete_topics([name])[name].result(timeout=15)
        leader.leave()
        group.wait(lambda: follower.reason_to_rejoin is not None, follower)
        group.join_and_own(follower, Recorder())
        assert follower.reason_to_rejoin is None
    finally:
        leader.leave()
        follower.leave()


def test_a_broker_that_is_away_is_reported_in_time(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(KafkaUnavailable):
        ensure_topic(NOWHERE, own_topic(name), timeout=1.0)

    assert time.monotonic() - began < 3.0


def test_joining_without_a_broker_can_be_tried_again() -> None:
    member = KafkaMembership(OutboxSettings(LEADER_TOPIC="x", KAFKA=NOWHERE))

    for _ in range(2):
        with pytest.raises(KafkaUnavailable):
            member.join(Recorder())
    member.leave()


@pytest.fixture
def inhabitant(config: dict[str, Any], name: str, topic: str) -> Iterator[Consumer]:
    """A group's only member."""
    consumer = Consumer({**config, "group.id": name, "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    eventually(consumer.assignment, meanwhile=lambda: consumer.poll(0.1))
    yield consumer
    consumer.close()


def test_an_empty_group_can_be_entered_at_once(
    config: dict[str, Any], name: str
) -> None:
    join_gate = JoinGate(config, group=name, session_timeout=600.0)
    # A broker on which no group has ever been has to make itself ready first.
    eventually(lambda: may_enter(join_gate))


def test_a_newcomer_waits_for_one_session_timeout(
    config: dict[str, Any], name: str, inhabitant: Consumer
) -> None:
    """By then, a member that had crashed before it came is forgotten."""
    join_gate = JoinGate(config, group=name, session_timeout=1.0)
    began = time.monotonic()
    assert not may_enter(join_gate)
    eventually(lambda: may_enter(join_gate), meanwhile=lambda: inhabitant.poll(0.1))
    assert 1.0 <= time.monotonic() - began < 6.0
    assert not join_gate.is_waiting


def test_a_newcomer_enters_as_soon_as_the_last_member_has_left(
    config: dict[str, Any], name: str, inhabitant: Consumer
) -> None:
    join_gate = JoinGate(config, group=name, session_timeout=600.0)
    assert not may_enter(join_gate)
    inhabitant.unsubscribe()
    eventually(lambda: may_enter(join_gate), meanwhile=lambda: inhabitant.poll(0.1))


def test_a_newcomer_waits_for_members_with_another_number_of_shards(
    config: dict[str, Any], name: str, inhabitant: Consumer
) -> None:
    """However long they stay; the number of this one is 1."""
    join_gate = JoinGate(config, group=name, session_timeout=0.1, shards=2)
    for _ in range(20):
        inhabitant.poll(0.1)
        with pytest.raises(JoinLater, match="SHARDS is 2 here, and the leader group"):
            join_gate.enter()
    inhabitant.unsubscribe()
    eventually(lambda: may_enter(join_gate), meanwhile=lambda: inhabitant.poll(0.1))


def test_of_members_with_different_numbers_of_shards_none_leads(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looked into the group before the other one was in it."""
    monkeypatch.setattr(JoinGate, "enter", lambda _: None)
    options = replace(KafkaGroup(config["bootstrap.servers"]).options, SHARDS=2)
    first = KafkaMembership(options, name="a")
    second = KafkaMembership(replace(options, SHARDS=3), name="b")
    theirs = [Recorder() for _ in range(3)]
    try:
        first.join(Recorder(), Recorder())
        second.join(*theirs)

        def know() -> bool:
            first.poll(0.05)
            second.poll(0.05)
            return bool(first.reason_to_rejoin and second.reason_to_rejoin)

        eventually(know)
        assert "SHARDS is 3 here" in (second.reason_to_rejoin or "")
        assert [listener.told for listener in theirs] == [[], [], []]
    finally:
        first.leave()
        second.leave()


def test_shards_are_led_each_through_its_partition(config: dict[str, Any]) -> None:
    options = replace(KafkaGroup(config["bootstrap.servers"]).options, SHARDS=2)
    member = KafkaMembership(options)
    listeners = [Recorder(), Recorder()]
    try:
        while True:
            try:
                member.join(*listeners)
            except JoinLater:
                continue
            break
        eventually(
            lambda: all(listener.told == ["assigned"] for listener in listeners),
            meanwhile=lambda: member.poll(0.05),
        )
        heartbeat = Heartbeat(node="n", nonce="second", sent_at=1.0)
        member.send(heartbeat, 1)
        eventually(
            lambda: listeners[1].has_heard("second"),
            meanwhile=lambda: member.poll(0.05),
        )
        (offset,) = listeners[1].heartbeats
        member.confirm(offset, 1)
        eventually(
            lambda: listeners[1].confirmations == [offset],
            meanwhile=lambda: member.poll(0.05),
        )
        assert {*member.fencing_tokens} == {1}
        assert listeners[0].heartbeats == {}
    finally:
        member.leave()
    assert [listener.told[-1] for listener in listeners] == ["revoked", "revoked"]


def test_partitions_are_added_for_more_shards(
    config: dict[str, Any], topics: Topics
) -> None:
    topic = topics.create(partitions=1)
    assert ensure_topic(config, own_topic(topic, 3)) == 3
    assert ensure_topic(config, own_topic(topic, 2)) == 3


class Prover(Recorder):
    """Has its heartbeats confirmed, and notes when those were sent that are."""

    def __init__(self, member: Membership) -> None:
        super().__init__()
        self.proven: list[float] = []
        self._member = member

    def heard(self, heartbeat: Heartbeat, offset: int) -> None:
        super().heard(heartbeat, offset)
        self._member.confirm(offset, 0)

    def confirmed(self, offset: int) -> None:
        self.proven.append(self.heartbeats[offset].sent_at)


def longest_silence(bootstrap_servers: str) -> float:
    """Have a follower join, and at once another; return what it cost the leader."""
    group = KafkaGroup(bootstrap_servers)
    leader, follower = group.member("leader"), group.member("follower")
    stranger = Consumer(consumer_config(group.options))
    prover = Prover(leader)
    try:
        group.join_and_own(leader, prover)
        group.join(follower, Recorder(), leader)
        stranger.subscribe([group.options.LEADER_TOPIC])
        end = time.monotonic() + 2.0
        while (now := time.monotonic()) < end:
            leader.send(Heartbeat(node="leader", nonce="n", sent_at=now), 0)
            leader.poll(0.02)
            follower.poll(0.02)
            stranger.poll(0.02)
    finally:
        stranger.close()
        group.close()
    return max(later - sooner for sooner, later in pairwise(prover.proven))


def test_newcomers_one_after_the_other_hardly_silence_the_leader(
    bootstrap_servers: str,
) -> None:
    """While a group waits for one that has to rejoin, it hears nobody's proofs."""
    silences = [longest_silence(bootstrap_servers) for _ in range(3)]

    assert median(silences) < 0.75, silences


def test_heartbeats_of_the_past_are_not_heard(config: dict[str, Any]) -> None:
    """An hour of them may lie there, of a database that was dropped."""
    group = KafkaGroup(config["bootstrap.servers"])
    ensure_topic(config, leader_topic(group.options))
    group.write(encode(Heartbeat(node="gone", nonce="n", sent_at=1.0)))
    topic = group.options.leader_topic
    watch = Watch(watch_config(group.options), topic=topic, shards=[0])
    heard: list[str] = []

    def hears_the_next() -> bool:
        group.write(encode(Heartbeat(node="present", nonce="n", sent_at=1.0)))
        heard.extend(heartbeat.node for heartbeat, _ in watch.heard())
        return bool(heard)

    try:
        eventually(hears_the_next)
    finally:
        watch.close()
    assert set(heard) == {"present"}


def test_a_row_that_a_harvester_sent_is_no_heartbeat(config: dict[str, Any]) -> None:
    """Else whoever may insert into one outbox could end the harvesters of another."""
    group = KafkaGroup(config["bootstrap.servers"])
    ensure_topic(config, leader_topic(group.options))
    topic = group.options.leader_topic
    watch = Watch(watch_config(group.options), topic=topic, shards=[0])
    heard: list[str] = []

    def hears_the_next() -> bool:
        forged = encode(Heartbeat(node="forged", nonce="n", sent_at=1.0))
        group.write(forged, [("outbox-message-id", str(uuid4()))])
        group.write(encode(Heartbeat(node="leader", nonce="n", sent_at=1.0)))
        heard.extend(heartbeat.node for heartbeat, _ in watch.heard())
        return bool(heard)

    try:
        eventually(hears_the_next)
    finally:
        watch.close()
    assert set(heard) == {"leader"}


def outboxes() -> list[Identity]:
    """Two that have nothing in common."""
    return [Identity(str(uuid4()), f"1/{number}/3") for number in (1, 2)]


def test_a_newcomer_that_hears_another_outbox_never_joins(
    config: dict[str, Any],
) -> None:
    group = KafkaGroup(config["bootstrap.servers"])
    here, there = outboxes()
    leader = KafkaMembership(group.options, name="a", identity=lambda: here)
    late = KafkaMembership(group.options, name="b", identity=lambda: there)
    heard = Recorder()
    group.join_and_own(leader, heard)

    def refuses() -> bool:
        leader.send(Heartbeat(node="a", nonce="n", sent_at=1.0), 0)
        leader.poll(0.05)
        try:
            late.join(Recorder())
        except JoinLater:
            return False
        except WrongOutbox:
            return True
        raise AssertionError("it joined")

    try:
        group.wait(refuses)
        name = group.options.leader_group
        admin = AdminClient(config)
        found = admin.describe_consumer_groups([name])[name].result(5)
        assert [member.client_id for member in found.members] == ["a"]
        assert heard.told == ["assigned"]
    finally:
        late.leave()
        leader.leave()


def _itself(outbox: Identity) -> Identity:
    return outbox


def join_at_once(servers: str) -> tuple[KafkaGroup, dict[KafkaMembership, Recorder]]:
    """Join for two outboxes, both of which have found the group empty."""

    def both_joined() -> tuple[KafkaGroup, dict[KafkaMembership, Recorder]] | None:
        group = KafkaGroup(servers)
        recorders = {
            KafkaMembership(
                group.options, name=name, identity=partial(_itself, outbox)
            ): Recorder()
            for name, outbox in zip("ab", outboxes(), strict=True)
        }
        with ThreadPoolExecutor() as pool:
            joining = [pool.submit(m.join, r) for m, r in recorders.items()]
        if not any(isinstance(joined.exception(), JoinLater) for joined in joining):
            for joined in joining:
                joined.result()
            return group, recorders
        # The first was in the group when the second looked.
        for member in recorders:
            member.leave()
        return None

    return eventually(both_joined)


def test_a_standby_that_hears_another_outbox_refuses(config: dict[str, Any]) -> None:
    """Both found the group empty, so that neither waited."""
    group, recorders = join_at_once(config["bootstrap.servers"])
    refused: list[KafkaMembership] = []

    def one_refuses() -> bool:
        for member, recorder in recorders.items():
            if "assigned" in recorder.told:
                member.send(Heartbeat(node="x", nonce="n", sent_at=1.0), 0)
            try:
                member.poll(0.05)
            except WrongOutbox:
                refused.append(member)
        return bool(refused)

    try:
        group.wait(one_refuses)
        (standby,) = refused
        assert recorders[standby].told == []
    finally:
        for member in recorders:
            member.leave()
