"""The wrappers that put faults round a port."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import DatabaseUnavailable
from django_outbox.message.record import KeyToRead
from django_outbox.relay.batch import Batch
from django_outbox.relay.ports import Outbox, Producer
from django_outbox.testing.faults import FaultyOutbox, FaultyProducer
from tests.fakes.outbox import InMemoryOutbox
from tests.fakes.producer import InMemoryLog, InMemoryProducer

from .samples import record

Reports = list[tuple[int, str | None]]


def produce(producer: FaultyProducer, count: int) -> Reports:
    """Produce so many records; return what became of each."""
    reports: Reports = []
    records = [record(number) for number in range(count)]
    while records:
        batch = Batch(records=records, taken_at=0.0)
        queued, error = producer.produce(batch, "leader")
        assert batch.records == records, "the caller cuts a batch"
        batch.records = records[:queued]
        records = records[queued:]
        if error is not None:
            reports.append((records.pop(0).id, error.code))
    for batch, faults in producer.poll(0):
        codes = {fault.record.id: fault.error.code for fault in faults}
        reports += [(r.id, codes.get(r.id)) for r in batch.records]
    return sorted(reports)


def test_a_delivery_fault_denies_a_message_that_is_in_the_log() -> None:
    log = InMemoryLog()
    producer = FaultyProducer(InMemoryProducer(log), delivery_rate=1.0)

    assert produce(producer, 2) == [(0, "FAULT_DELIVERY"), (1, "FAULT_DELIVERY")]
    assert len(log.messages) == 2
    assert producer.faults == 2


def test_a_produce_fault_sends_nothing() -> None:
    log = InMemoryLog()
    producer = FaultyProducer(InMemoryProducer(log), produce_rate=1.0)

    assert produce(producer, 2) == [(0, "FAULT_PRODUCE"), (1, "FAULT_PRODUCE")]
    assert log.messages == []


def test_a_batch_is_queued_up_to_the_first_produce_fault() -> None:
    log = InMemoryLog()
    producer = FaultyProducer(InMemoryProducer(log), produce_rate=0.02)
    records = [record(number) for number in range(200)]
    batch = Batch(records=records, taken_at=0.0)

    queued, error = producer.produce(batch, "leader")
    assert error is not None
    assert 0 < queued < 200
    assert producer.delivered == 0
    producer.poll(0)

    assert len(log.messages) == queued == producer.delivered


def test_what_was_purged_has_no_other_fault() -> None:
    producer = FaultyProducer(InMemoryProducer(InMemoryLog()), delivery_rate=1.0)
    batch = Batch(records=[record(1)], taken_at=0.0)
    producer.produce(batch, "leader")

    ((purged, (fault,)),) = producer.purge()
    producer.close()

    assert purged is batch
    assert fault.error.code == "_PURGE_QUEUE"
    assert producer.faults == 0


def test_what_the_real_producer_has_proven_is_proven() -> None:
    producer = FaultyProducer(InMemoryProducer(InMemoryLog()))
    batch = Batch(records=[record(1)], taken_at=0.0, proves_keys=True)
    producer.produce(batch, "leader")

    assert [*producer.poll(0)] == [(batch, [])]
    assert producer.proven_topics == {"t"}


@pytest.mark.parametrize(
    ("wrapper", "port"), [(FaultyProducer, Producer), (FaultyOutbox, Outbox)]
)
def test_a_wrapper_has_all_of_its_port(wrapper: type, port: type) -> None:
    assert {name for name in dir(port) if name[0] != "_"} <= {*dir(wrapper)}


def test_the_same_seed_gives_the_same_faults_at_about_the_rate() -> None:
    runs = []
    for seed in (1, 1, 2):
        producer = FaultyProducer(
            InMemoryProducer(InMemoryLog()), delivery_rate=0.02, seed=seed
        )
        runs.append(produce(producer, 5000))
        assert 50 < producer.faults < 200

    assert runs[0] == runs[1] != runs[2]


def test_a_failure_of_the_real_producer_stays_what_it_is() -> None:
    log = InMemoryLog(has_auto_create=False)
    producer = FaultyProducer(InMemoryProducer(log), delivery_rate=1.0)

    assert produce(producer, 1) == [(0, "UNKNOWN_TOPIC_OR_PART")]
    assert producer.faults == 0


def test_a_fault_before_a_call_does_nothing_and_one_after_it_does_all() -> None:
    table = InMemoryOutbox()
    number = table.insert("t", "k").id

    with pytest.raises(DatabaseUnavailable):
        FaultyOutbox(table, before_rate=1.0).mark("me", limit=10)
    assert table.marks() == {number: None}

    with pytest.raises(DatabaseUnavailable):
        FaultyOutbox(table, after_rate=1.0).mark("me", limit=10)
    assert table.marks() == {number: "me"}


def test_a_table_without_faults_is_the_real_one() -> None:
    table = InMemoryOutbox()
    table.insert("t", "k")
    outbox = FaultyOutbox(table)

    outbox.begin()
    outbox.ping()
    assert outbox.timeline() == table.timeline()
    records = outbox.mark("me", limit=10)
    assert outbox.fail("me", []) == 0
    assert outbox.park("me", []) == 0
    outbox.reset("me", [KeyToRead(("t", "k"), 1)])
    assert outbox.purge("me", records) == 0
    assert outbox.faults == 0
