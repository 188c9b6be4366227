"""
How records leave the table, in order and none lost: one engine for every delivery.

It knows neither Django nor a driver, a broker, a clock or a thread: `ports.py` says
what it needs, and a seeded simulator (tests/simulation) drives it through random
faults. The steps A1–A9 and B1–B5 are those of goharvest's protocol MP/R (mark,
purge/reset; github.com/obsidiandynamics/goharvest), from which it comes.


The flow
========

The unit of work is a page, not a record::

    table ── page ──▶ waiting ── batch ──▶ sender ──▶ Kafka
      ▲            (what may go)  (in order)             │
      │                                            acknowledged, refused
      └── one DELETE for many rows ◀── settlement ◀──────┘

=====================  ======================================================
dispatcher.py          A1 check leadership · A3 ask for the next page · drain ·
                       A9 take a new leader id
page_reader.py         B2 reset the keys that are due · read the next page
engine.py              takes pages apart, hands out batches, makes settlements,
                       blocks keys (B3 to B5)
waiting_records.py     A4 to A7: what was read and not sent, and which of it may go
pipeline.py            A8, at least once: batches through one producer
ledger/                A8, exactly once: transactions with a ledger
settler.py             B1 purge what is acknowledged, note or park what failed
=====================  ======================================================

The rest:

=====================  ======================================================
batch.py               records that are sent together, and their faults
page_request.py        what is asked of the table, and the answer
work_queue.py          the queues between a dispatcher and the threads that access
                       the table
failure_log.py         logs failed deliveries: each cause at once, then rarely
settlement.py          the outcome of deliveries, and of settling them in the table
gaps.py                which rows a reader without marks has not read yet
memory_marks.py        marks in the memory of the leader, instead of the table
takeover.py            which cluster relays whose records, and when
takeovers.py           which takeovers are in progress
lease.py               whether a leader id may act now, or may be used again
blocked_key.py         a key that waits for a retry, and from which row on
polling.py             when to read the table next
availability.py        how long the table has been unavailable
meter.py               reads the counters for the event meter_read
window.py              how many records may be under way, by what Kafka acknowledges
settings.py            amounts and timing of one relay
releaser.py            moves staged messages that are due into the outbox
=====================  ======================================================

A *key* is an ordering key: (topic, key). The kinds of delivery are settings of the
same engine: any number of records of a key under way (the default); one of a key,
with marks in memory or in the table; or one transaction after the other.


What holds
==========

*First deliveries of a key are in order.* The producer sends nothing behind a record
that was not delivered, and what was not acknowledged is sent again, in order, by the
next producer. Batches settle in the order in which they were sent, so a successor
repeats a run of records without holes. With one record of a key at a time, the next
one goes when the purge of the last is committed, not when it is acknowledged: after any
crash only the last record of a key can be sent again.

*Nothing is lost.* A row leaves the table only after a delivery report without error and
with an offset. A row that commits below rows that were read is found by the next page:
marks in the table (`leader_id`) carry no position, and marks in memory remember every
gap that they have passed. The rows of a dead leader are found by its successor, which
begins at the head of the table.

*A former leader does no harm.* Every write is scoped: by the leader id where it is the
mark, else by the message ids of the rows that were read. Before each batch the term has
to be proven; if it is not, the sender gives up what is under way.

*One leader id at a time.* A new id is taken only when nothing is in flight under the
previous one. An id that was stood down from is never led again: when the elector
extends a lease just after it has ended, the relay takes a new one.


What a failure does
===================

=======================  ====================================================
delivery failed          The key is blocked: its other records are forgotten here
                         and stay in the table. Its row gets the attempt and the
                         error. When its back-off is over, the key's rows are read
                         again, in order. Other keys continue.
poison, policy `park`    The row moves to the parked table; then the key continues.
outcome of a page or     Rows may be marked, or count as read, that nobody here
reset unknown            has: nothing more is sent, records in flight settle, and a
                         new leader id (LeaderRefreshed) finds all unsettled rows.
fewer rows purged or     With marks in the table: another leader has marked these
parked than asked        rows. A new leader id, as above.
producer broken          It is discarded. What was not acknowledged is queued again,
                         before everything else, for the next one.
lease over               Stand down: forget the queue, discard the producer.
table unavailable        Retry; after a deadline, resign leadership.
row locked, or refused   The other rows are settled. This one is retried apart;
by a trigger             its record stays in flight and is not sent again.
row unreadable           Poison: refused before it is produced.
another cluster's rows   Overdue for their own relay: the repair scan finds them,
                         and they go behind this cluster's own.
=======================  ====================================================
"""
