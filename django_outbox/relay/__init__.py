"""
How records leave the table, in order and none lost: what both relays share, and MP/R.

MP/R is *mark, purge/reset*, the protocol of goharvest
(github.com/obsidiandynamics/goharvest, README); the steps A1–A9 and B1–B5 keep its
numbers. With DELIVERY = "exactly-once" the ledger relay takes its place: see
`ledger/`. This package knows neither Django nor a driver, a broker or a clock:
`ports.py` says what it needs, and a seeded simulator (tests/simulation) drives it
through random faults.


The flow of MP/R
================

::

    table ── mark ──▶ queue by key ── take ──▶ produce ──▶ Kafka
      ▲              (mpr/inflight.py)                        │
      │                                                 delivery report
      └── purge / fail / park ◀── settlement ◀───────────────┘
            (settler.py)        (mpr/barrier.py)

A *key* is an ordering key: (topic, key). A record is marked (claimed in the table
for this leader id), taken (counted in flight, its key's barrier raised), produced,
reported, and settled (the table holds the outcome, the barrier is lowered).

Three parts share one thread. The marker and the settler run in fibers, so that each
part waits for its own server only:

=====================  ======================================================
mpr/dispatcher.py      A1 check leadership · A2 clear force-remark · A4
(decides, produces)    throttle on all in flight · A5 barrier of the key ·
                       A6, A7 count it in · A8 produce · A9 take a new leader
                       id
mpr/marker.py          B2 reset the keys that are due · A3 mark from the head
(marks, resets)
settler.py             B1 purge what is acknowledged · note or park what
(purges, fails, parks) failed (B3: its key is blocked) · then the dispatcher
                       lowers the counters and barriers (B4, B5)
=====================  ======================================================

What else both relays use:

=====================  ======================================================
work_queue.py          the queues between a dispatcher, the fibers that access the
                       table, and other threads
settlement.py          what became of records, and what the table made of it
fibers.py              several bodies on one thread, each waiting for a socket
gaps.py                which rows a reader without marks has not read yet
memory_marks.py        marks in the memory of the leader, instead of the table
takeover.py            which cluster relays whose records, and when
takeovers.py           which takeovers are in progress
lease.py               whether a leader id may act now, or may be used again
poison.py              whether a failed record waits, or is parked
blocked_key.py         a key that waits for a retry, and from which row on
polling.py             when to read the table next
stuck_rows.py          acknowledged records that do not leave the table yet
availability.py        how long the table has been unavailable
meter.py               reads the counters for the event meter_read
releaser.py            moves staged messages that are due into the outbox
=====================  ======================================================


What holds
==========

*First deliveries of a key are in order.* With one record of a key in flight, the
barrier is lowered after the purge is committed, not at the acknowledgement: after any
crash only the last record of a key can be sent again. With any number in flight (the
default), the producer sends nothing behind a failure, and what was not acknowledged is
sent again in order by the next producer.

*Nothing is lost.* A row leaves the table only after a delivery report without
error and with an offset. A mark claims every row that this leader id has not
marked, so a row that commits behind marked rows is found by the next mark, and
the rows of a dead leader are found by its successor. Marks in the table
(`leader_id`) carry no position; marks in memory remember every gap that they
have passed.

*A former leader does no harm.* Every write is scoped: by the leader id where it
is the mark, else by the message ids of the rows that were read. Before each mark
and each record that it produces, the dispatcher checks that its term is still
proven; if not, it stands down and empties the producer's queue.

*One leader id at a time.* A new id is taken only when nothing is in flight
under the previous one. After a stand-down nothing is known of the records that its
id has marked, so the same id is never led again: when the elector extends a lease
just after it has ended, the relay takes a new one.


What a failure does
===================

=======================  ====================================================
delivery failed          The key is blocked: its marked followers are
                         forgotten here and stay marked in the table. Its row
                         gets the attempt and the error. When its back-off is
                         over, all the key's rows are reset, and the next
                         mark finds them in order. Other keys continue.
poison, policy `park`    The row moves to the parked table; the key continues.
outcome of a mark or     The table may hold marks that this leader does not
reset unknown            know: *force-remark*. Nothing more is produced, records
                         in flight settle, and a new leader id (LeaderRefreshed)
                         makes all unsettled rows markable again, in order.
purge or park affects    Another leader has marked these rows, or a statement of
too few rows, or a mark  a former leader id took effect late: force-remark.
returns rows that are
queued here already
producer broken          It is discarded. With any number of a key in flight, what
                         was not acknowledged is queued again; otherwise
                         force-remark. Then the next one is built.
lease over               Stand down: forget the queue, discard the producer.
                         If the lease is extended after all: a new leader id.
table unavailable        Retry; after a deadline, resign leadership.
row locked, or refused   The other rows are settled. This one is retried apart;
by a trigger             its record stays in flight and is not sent again.
row unreadable           Poison: refused before it is produced.
another cluster's rows   Overdue for their own relay: the sweep finds them, and
                         they go behind this cluster's own.
=======================  ====================================================

Two differences from the reference are deliberate. There, every failed
delivery refreshes the leader id and so stops all keys; here it resets only its
own key, because marks and resets share one fiber and so cannot race.
And there a busy key stops the marker; here its followers wait in their own
queue.
"""
