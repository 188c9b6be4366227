"""The same scenarios on transactions in memory and on those of a real Kafka."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from django_outbox.exceptions import KafkaError, ProducerBroken, RecordPoisoned
from django_outbox.kafka.ledger_topic import encode
from django_outbox.message.record import Record
from django_outbox.relay.batch import Fault
from django_outbox.relay.ledger.committed_ids import IdRange
from django_outbox.relay.ledger.ports import Ledger, Transactions
from tests.unit.samples import record
from tests.waiting import eventually

from .groups import Recorder
from .transactions import Cluster, KafkaCluster, MemoryTransactions

LEADER = "11111111-1111-4111-8111-111111111111"
HISTORY = "7300000000000000000/00000001"


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kafka of each kind."""
    if request.param == "memory":
        yield MemoryTransactions()
        return
    cluster = KafkaCluster(request.getfixturevalue("bootstrap_servers"))
    yield cluster
    cluster.close()


def opened(cluster: Cluster, **options: Any) -> Transactions:
    transactions = cluster.transactions(**options)
    transactions.open()
    return transactions


def sent(
    transactions: Transactions,
    *records: Record,
    unpurged: Sequence[Record] = (),
    may_commit: Callable[[], bool] = lambda: True,
) -> Sequence[Fault] | None:
    """Carry these records; return None when they are committed, or the faults."""
    ledger = Ledger(timeline=HISTORY, records=[*records, *unpurged])
    return transactions.send(
        records, LEADER, ledger, patience=3.0, may_commit=may_commit
    )


def send_at_last(transactions: Transactions, *records: Record) -> None:
    """Send again what failed by nobody's fault, as the relay does."""

    def is_sent() -> bool:
        faults = sent(transactions, *records)
        assert not faults
        return faults is None

    eventually(is_sent, what="a commit", interval=0)


def test_what_is_committed_is_seen(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    seen: list[Sequence[bytes | None]] = []

    def look() -> bool:
        seen.append(cluster.read(topic, is_in_transaction=True))
        return True

    one, two = record(1, topic=topic, value="a"), record(2, topic=topic, value="b")

    assert sent(transactions, one, two, may_commit=look) is None
    assert seen == [[]]
    assert cluster.read(topic) == [b"a", b"b"]


def test_transactions_are_seen_in_their_order(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)

    for number in range(5):
        value = str(number)
        assert sent(transactions, record(number, topic=topic, value=value)) is None

    assert cluster.read(topic) == [b"0", b"1", b"2", b"3", b"4"]


def test_without_the_word_to_commit_nothing_is_seen(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    one = record(1, topic=topic)

    assert sent(transactions, one, may_commit=lambda: False) == []
    assert cluster.read(topic) == []
    assert sent(transactions, one) is None
    assert cluster.read(topic) == [b"v"]


def test_the_last_committed_ledger_is_returned(cluster: Cluster) -> None:
    topic = cluster.create()
    first = cluster.transactions()
    assert first.open() is None
    one, two, three = (record(n, topic=topic) for n in (1, 2, 3))
    sent(first, one)
    sent(first, two, unpurged=[one])
    sent(first, three, may_commit=lambda: False)

    ledger = cluster.transactions().open()

    assert ledger is not None
    assert ledger.timeline == HISTORY
    assert [(r.id, r.message_id) for r in ledger.records] == [
        (2, two.message_id),
        (1, one.message_id),
    ]


def test_an_empty_ledger_is_a_ledger(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    one = record(1, topic=topic)
    transactions.send(
        [one],
        LEADER,
        Ledger(timeline="h", records=[]),
        patience=3.0,
        may_commit=lambda: True,
    )

    assert transactions.open() == Ledger(timeline="h", records=[])


def test_a_ledger_keeps_what_was_relayed(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    one = record(1, topic=topic)
    ranges = (
        IdRange(-5, 70_000_000_000, 3, 1_700_000_000_000_000),
        IdRange(1, 1, 32, 0),
    )
    ledger = Ledger(timeline=HISTORY, records=[one], relayed=ranges)
    transactions.send([one], LEADER, ledger, patience=3.0, may_commit=lambda: True)

    found = transactions.open()

    assert found is not None
    assert found.relayed == ranges
    assert [(r.id, r.message_id) for r in found.records] == [(1, one.message_id)]


EVERY_ID = struct.pack(">qqqH", -(2**63), 2**63 - 1, 2**63 - 1, 1)
STEP_ZERO = struct.pack(">qqqH", 1, 9, 9, 0)


@pytest.mark.parametrize("value", [EVERY_ID, STEP_ZERO, b"junk", b""])
@pytest.mark.parametrize("prefix", ["ledger-", "outbox-ledger-"])
@pytest.mark.parametrize("relayed", [True, False])
def test_a_forged_ledger_is_skipped_for_the_one_before_it(
    cluster: Cluster, value: bytes, prefix: str, relayed: bool
) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    one = record(1, topic=topic)
    assert sent(transactions, one) is None
    headers = [
        (f"{prefix}format", "2" if prefix == "ledger-" else "1"),
        (f"{prefix}ranges", "1"),
        *([("outbox-message-id", one.message_id)] if relayed else []),
    ]
    for _ in range(20):
        cluster.forge(headers, value)

    ledger = transactions.open()

    assert ledger is not None
    assert (ledger.timeline, ledger.relayed) == (HISTORY, ())
    assert [r.id for r in ledger.records] == [1]
    send_at_last(transactions, record(2, topic=topic))


def test_a_ledger_of_another_key_is_none(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    assert sent(transactions, record(1, topic=topic)) is None
    ours, _ = encode(Ledger(timeline=HISTORY, records=[]))
    cluster.forge([(name, str(text)) for name, text in ours], b"", key="another")

    ledger = transactions.open()

    assert ledger is not None
    assert [r.id for r in ledger.records] == [1]


def test_an_operator_voids_the_ledger_with_a_tombstone(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    assert sent(transactions, record(1, topic=topic)) is None
    cluster.forge([], None)

    assert transactions.open() == Ledger(timeline="", records=[])


def test_a_ledger_of_a_later_version_is_not_guessed(cluster: Cluster) -> None:
    opened(cluster)
    cluster.forge([("outbox-ledger-format", "2")], b"")

    with pytest.raises(KafkaError, match="format 2"):
        cluster.transactions().open()


def test_to_read_the_ledger_disturbs_nobody(cluster: Cluster) -> None:
    topic, reader = cluster.create(), cluster.transactions()
    assert reader.read() is None
    transactions = opened(cluster)
    sent(transactions, record(1, topic=topic))

    # The broker may still write the marker of the commit, which is decided.
    ledger = eventually(reader.read, what="the ledger")
    assert [r.id for r in ledger.records] == [1]
    assert sent(transactions, record(2, topic=topic)) is None


def test_clusters_share_what_belongs_to_an_origin(cluster: Cluster) -> None:
    topic = cluster.create()
    origin = opened(cluster, CLUSTERS_COUNT=2)
    sent(origin, record(2, topic=topic, value="2"))
    taker = cluster.transactions(CLUSTERS_COUNT=2, CLUSTER_ID=1, origin=0)

    ledger = taker.open()
    assert ledger is not None
    assert [r.id for r in ledger.records] == [2]
    with pytest.raises(ProducerBroken) as caught:
        sent(origin, record(4, topic=topic, value="4"))

    assert caught.value.is_fenced
    assert cluster.transactions(CLUSTERS_COUNT=2, CLUSTER_ID=1, origin=1).open() is None
    assert sent(taker, record(6, topic=topic, value="6")) is None
    assert cluster.read(topic) == [b"2", b"6"]


def test_leaders_of_another_number_of_shards_are_fenced(cluster: Cluster) -> None:
    topic, former = cluster.create(), opened(cluster)
    one = record(1, topic=topic)
    assert sent(former, one) is None
    leader = cluster.transactions(SHARDS=2, shard=1)
    assert leader.open() is None

    (ledger,) = leader.others()

    assert ledger.shards == 1
    assert [r.message_id for r in ledger.records] == [one.message_id]
    with pytest.raises(ProducerBroken) as caught:
        sent(former, record(2, topic=topic))
    assert caught.value.is_fenced


def test_leaders_of_another_number_are_fenced_before_their_first_ledger(
    cluster: Cluster,
) -> None:
    """A transaction that they have begun could be committed much later."""
    topic, leader = cluster.create(), cluster.transactions(SHARDS=2, shard=1)
    former = [opened(cluster, SHARDS=shards) for shards in (1, 3)]
    leader.open()

    assert leader.others() == []

    for one in former:
        with pytest.raises(ProducerBroken) as caught:
            sent(one, record(1, topic=topic))
        assert caught.value.is_fenced
    assert sent(leader, record(2, topic=topic)) is None


def test_the_ledgers_of_other_shards_are_read_and_nobody_is_fenced(
    cluster: Cluster,
) -> None:
    topic, other = cluster.create(), opened(cluster, SHARDS=2)
    one = record(1, topic=topic)
    send_at_last(other, one)
    leader = opened(cluster, SHARDS=2, shard=1)

    # The broker may still write the marker of the commit, which is decided.
    (ledger,) = eventually(leader.others, what="the ledger")

    assert ledger.shards == 2
    assert [r.message_id for r in ledger.records] == [one.message_id]
    send_at_last(other, record(2, topic=topic))
    send_at_last(leader, record(3, topic=topic))


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_successor_fences_each_client_of_the_former_leader(
    cluster: Cluster, before: int
) -> None:
    topic, first = cluster.create(), opened(cluster)
    for number in range(before):
        assert sent(first, record(number, topic=topic, value=str(number))) is None
    second = opened(cluster)

    with pytest.raises(ProducerBroken) as caught:
        sent(first, record(8, topic=topic, value="8"))

    assert caught.value.is_fenced
    assert sent(second, record(9, topic=topic, value="9")) is None
    values = [*range(before), 9]
    assert cluster.read(topic) == [str(value).encode() for value in values]


def test_a_successor_aborts_what_was_left_open(cluster: Cluster) -> None:
    """The pause comes between the word to commit and the commit."""
    topic, first = cluster.create(), opened(cluster)
    ledgers: list[Ledger | None] = []

    def pause() -> bool:
        ledgers.append(cluster.transactions().open())
        return True

    with pytest.raises(ProducerBroken):
        sent(first, record(1, topic=topic), may_commit=pause)

    assert ledgers == [None]
    assert cluster.read(topic) == []


def test_a_client_that_was_fenced_may_open_again(cluster: Cluster) -> None:
    topic, first = cluster.create(), opened(cluster)
    opened(cluster)
    with pytest.raises(ProducerBroken):
        sent(first, record(1, topic=topic))
    first.close()

    assert first.open() is None
    send_at_last(first, record(1, topic=topic))


def test_nothing_is_sent_before_open_or_after_close(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), cluster.transactions()
    transactions.close()
    with pytest.raises(ProducerBroken):
        sent(transactions, record(1, topic=topic))
    transactions.open()
    transactions.serve()
    transactions.close()
    transactions.close()
    transactions.serve()

    with pytest.raises(ProducerBroken):
        sent(transactions, record(1, topic=topic))


def test_a_poison_record_is_named_and_nothing_is_seen(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    good = record(1, topic=topic)
    bad = record(2, topic=topic)._replace(
        header_keys=["outbox-id"], header_values=["1"]
    )

    faults = sent(transactions, good, bad)

    assert faults is not None
    ((found, error),) = faults
    assert found == bad
    assert isinstance(error, RecordPoisoned)
    assert (error.code, error.is_certain) == ("RESERVED_HEADER", True)
    assert cluster.read(topic) == []
    assert sent(transactions, good) is None


def test_an_unknown_topic_holds_nobody_up(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)
    good, lost = record(1, topic=topic), record(2, topic="no-such-topic")

    faults = sent(transactions, good, lost)

    assert faults is not None
    ((found, error),) = faults
    assert found == lost
    assert isinstance(error, RecordPoisoned)
    assert (error.code, error.is_certain) == ("UNKNOWN_TOPIC_OR_PART", True)
    assert sent(transactions, good) is None
    assert cluster.read(topic) == [b"v"]


def test_a_partition_that_does_not_exist_is_poison(cluster: Cluster) -> None:
    topic, transactions = cluster.create(), opened(cluster)

    faults = sent(transactions, record(1, topic=topic)._replace(partition=7))

    assert faults is not None
    ((_, error),) = faults
    assert isinstance(error, RecordPoisoned)
    assert (error.code, error.is_certain) == ("_UNKNOWN_PARTITION", True)


def test_too_large_is_said_of_the_batch_and_is_certain_of_one_alone(
    cluster: Cluster,
) -> None:
    """The broker refuses the batch, which does not say who is at fault."""
    topic, transactions = cluster.create(max_message_bytes=2000), opened(cluster)
    small, large = record(1, topic=topic), record(2, topic=topic, value="v" * 3000)

    faults = sent(transactions, small, large)
    assert faults
    assert large in [fault.record for fault in faults]
    for _, error in faults:
        assert isinstance(error, RecordPoisoned)
        assert (error.code, error.is_certain) == ("MSG_SIZE_TOO_LARGE", False)

    faults = sent(transactions, large)
    assert faults is not None
    ((found, error),) = faults
    assert found == large
    assert isinstance(error, RecordPoisoned)
    assert (error.code, error.is_certain) == ("MSG_SIZE_TOO_LARGE", True)

    send_at_last(transactions, small)
    assert cluster.read(topic) == [b"v"]


def test_a_leader_whom_the_group_has_replaced_is_refused(cluster: Cluster) -> None:
    """Also when it takes the transactional id over first: the generation counts."""
    topic = cluster.create()
    group, transactions_of = cluster.with_group()
    a, b = group.member("a"), group.member("b")
    heard_by_a, heard_by_b = Recorder(), Recorder()
    group.join_and_own(a, heard_by_a)
    group.read_back(a, heard_by_a, "nonce-a")
    of_a, of_b = transactions_of(a), transactions_of(b)
    of_a.open()
    assert sent(of_a, record(1, topic=topic, value="a")) is None

    # a does not poll any more, and so does not hear that b is assigned.
    group.join(b, heard_by_b, a)
    group.pass_time(1.0, a, b)
    group.wait(lambda: heard_by_b.told == ["assigned"], b)
    group.read_back(b, heard_by_b, "nonce-b")
    of_b.open()
    of_a.close()
    of_a.open()

    assert sent(of_a, record(2, topic=topic, value="zombie")) == []
    with pytest.raises(ProducerBroken):
        sent(of_b, record(2, topic=topic, value="b"))
    of_b.close()
    ledger = of_b.open()
    assert ledger is not None
    assert [r.id for r in ledger.records] == [1]
    assert sent(of_b, record(2, topic=topic, value="b")) is None
    assert cluster.read(topic) == [b"a", b"b"]


def test_a_member_that_owns_nothing_commits_nothing(cluster: Cluster) -> None:
    topic = cluster.create()
    group, transactions_of = cluster.with_group()
    a, heard_by_a = group.member("a"), Recorder()
    group.join_and_own(a, heard_by_a)
    group.read_back(a, heard_by_a, "nonce-a")
    a.leave()
    transactions = transactions_of(a)
    transactions.open()

    assert sent(transactions, record(1, topic=topic)) == []
    assert cluster.read(topic) == []
