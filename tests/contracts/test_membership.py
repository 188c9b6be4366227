"""The same scenarios on the leader group in memory and on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.kafka.heartbeats import encode

from .groups import SESSION_TIMEOUT, Group, KafkaGroup, MemoryGroup, Recorder


@pytest.fixture(params=["memory", "kafka"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    """A leader group of each kind."""
    if request.param == "memory":
        yield MemoryGroup()
        return
    group = KafkaGroup(request.getfixturevalue("bootstrap_servers"))
    yield group
    group.close()


def test_the_first_member_is_given_the_partition(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)

    assert heard_by_a.told == ["assigned"]


def test_a_heartbeat_is_read_back_as_it_was_sent(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)
    before = group.clock()
    offset = group.read_back(a, heard_by_a, "nonce-1")

    heartbeat = heard_by_a.heartbeats[offset]
    assert (heartbeat.node, heartbeat.nonce) == ("n", "nonce-1")
    assert before <= heartbeat.sent_at <= group.clock()


def test_the_group_confirms_what_its_member_commits(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)
    offset = group.read_back(a, heard_by_a, "nonce-1")
    assert heard_by_a.confirmations == []

    a.confirm(offset, 0)
    group.wait(lambda: heard_by_a.confirmations == [offset], a)


def test_anothers_heartbeat_is_heard_as_anothers(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.read_back(a, heard_by_a, "nonce-1")
    group.write(encode(Heartbeat(node="x", nonce="stranger", sent_at=1.0)))

    group.wait(lambda: heard_by_a.has_heard("stranger"), a)


def test_what_is_no_heartbeat_is_passed_over(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.read_back(a, heard_by_a, "nonce-1")
    for garbage in (b"", b"hello", b"{}", b"\xff\x00"):
        group.write(garbage)
    group.read_back(a, heard_by_a, "nonce-2")

    assert {h.nonce for h in heard_by_a.heartbeats.values()} == {"nonce-1", "nonce-2"}


def test_a_member_that_joins_leaves_the_owner_alone(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.join(b, heard_by_b, a)
    group.pass_time(2.0, a, b)

    assert heard_by_a.told == ["assigned"]
    assert heard_by_b.told == []
    offset = group.read_back(a, heard_by_a, "nonce-1")
    a.confirm(offset, 0)
    group.wait(lambda: offset in heard_by_a.confirmations, a, b)


def test_a_member_that_leaves_is_revoked_and_another_one_assigned(
    group: Group,
) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.join(b, heard_by_b, a)
    group.pass_time(1.0, a, b)
    a.leave()

    assert heard_by_a.told == ["assigned", "revoked"]
    group.wait(lambda: heard_by_b.told == ["assigned"], b)


def test_nobody_is_assigned_before_the_revocation_has_been_served(
    group: Group,
) -> None:
    """The barrier: what a leader does there, it does before its successor."""
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.join(b, heard_by_b, a)
    group.pass_time(1.0, a, b)
    told_meanwhile: list[list[str]] = []

    def drain() -> None:
        group.pass_time(1.5 * SESSION_TIMEOUT, b)
        told_meanwhile.append(list(heard_by_b.told))

    heard_by_a.on_revoked = drain
    a.leave()

    assert told_meanwhile == [[]]
    group.wait(lambda: heard_by_b.told == ["assigned"], b)


def test_a_new_owner_hears_nothing_of_the_past(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.read_back(a, heard_by_a, "old")
    a.leave()
    group.join_and_own(b, heard_by_b)
    group.read_back(b, heard_by_b, "new")

    assert not heard_by_b.has_heard("old")


def test_a_member_that_does_not_poll_loses_the_partition(group: Group) -> None:
    """A leader that is alive but stuck makes room for another one."""
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    offset = group.read_back(a, heard_by_a, "nonce-1")
    group.join(b, heard_by_b, a)
    group.pass_time(1.0, a, b)
    group.wait(lambda: heard_by_b.told == ["assigned"], b)
    a.confirm(offset, 0)
    group.wait(lambda: "lost" in heard_by_a.told, a, b)
    group.pass_time(1.0, a, b)

    assert heard_by_a.told == ["assigned", "lost"]
    assert heard_by_a.confirmations == []


def test_a_member_may_join_again(group: Group) -> None:
    a, first, second = group.member("a"), Recorder(), Recorder()
    group.join_and_own(a, first)
    a.leave()
    group.join_and_own(a, second)
    offset = group.read_back(a, second, "nonce-2")
    a.confirm(offset, 0)
    group.wait(lambda: second.confirmations == [offset], a)

    assert first.told == ["assigned", "revoked"]
    assert second.told == ["assigned"]


def test_a_member_that_owns_nothing_leaves_in_silence(group: Group) -> None:
    a, heard_by_a = group.member("a"), Recorder()
    b, heard_by_b = group.member("b"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.join(b, heard_by_b, a)
    group.pass_time(1.0, a, b)
    b.leave()
    b.leave()
    group.pass_time(1.0, a)

    assert heard_by_b.told == []
    assert heard_by_a.told == ["assigned"]


def test_nothing_happens_before_a_member_joins(group: Group) -> None:
    a = group.member("a")

    a.send(Heartbeat(node="n", nonce="x", sent_at=1.0), 0)
    a.confirm(1, 0)
    a.poll(0.0)
    a.leave()
