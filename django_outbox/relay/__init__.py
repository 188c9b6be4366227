"""
MP/R: mark, purge/reset. How records leave the table, in order and none lost.

The protocol is goharvest's (github.com/obsidiandynamics/goharvest, README);
the steps A1–A9 and B1–B5 keep its numbers. Nothing in this package knows
Django, a driver, a broker or a clock: `ports.py` names what it needs, and a
seeded simulator (tests/simulation) drives it through random faults.


The flow
========

::

    table ── mark ──▶ queue by lane ── take ──▶ produce ──▶ Kafka
      ▲                  (inflight.py)                        │
      │                                                 delivery report
      └── purge / fail / park ◀── settlement ◀───────────────┘
             (settle.py)            (relay.py)

A *lane* is a (topic, key). A record is marked (claimed in the table for this
leader id), taken (counted in flight, its lane's barrier raised), produced,
reported, and settled (the table holds the outcome, the barrier is lowered).

Three parts that wait for nobody but their own server, on one thread that the
harvester owns (`harvester/workers.py`):

=====================  ======================================================
dispatch.py            A1 check leadership · A2 clear force-remark · A4
(decides, produces)    throttle on all in flight · A5 barrier of the lane ·
                       A6, A7 count it in · A8 produce · A9 take a new leader
                       id
mark.py                B2 reset the lanes that are due · A3 mark from the head
(marks, resets)
settle.py              B1 purge what is acknowledged · note or park what
(purges, fails, parks) failed (B3: its lane is blocked) · then dispatch lowers
                       the counters and barriers (B4, B5)
=====================  ======================================================


What holds
==========

*At most one record of a lane is in an unknown state.* The barrier is lowered
after the purge is committed, not at the acknowledgement. So after any crash
only the last record of a lane can be sent again, and never behind a later one.

*Nothing is lost.* A row leaves the table only after a delivery report without
error and with an offset. A mark takes whatever this leader id has not marked,
so a row that commits behind marked rows is found by the next mark, and the rows
of a dead leader are found by its successor. Marks in the table (`leader_id`)
carry no position; marks in memory (`memory.py`) remember every gap that they
have passed.

*An old leader harms nobody.* Every write is scoped: by the leader id where it
is the mark, else by the message ids of what was read. Before each mark and each
produce the dispatcher asks whether its term is still proven; when it is not, it
stands down and empties the producer's queue.

*One leader id at a time.* A new id is taken only when nothing is in flight
under the former one.


What a failure does
===================

=======================  ====================================================
delivery failed          The lane is blocked: its marked followers are
                         forgotten here and stay marked in the table. Its row
                         gets the attempt and the error. When its back-off is
                         over, all the lane's rows are reset, and the next
                         mark finds them in order. Other lanes flow on.
poison, policy `park`    The row moves to the parked table; the lane flows on.
outcome of a mark or     The table may hold marks that nobody knows of:
reset unknown            *force-remark*. Nothing more is produced, what is in
                         flight settles, and a new leader id (LeaderRefreshed)
                         makes all unsettled rows markable again, in order.
purge or park hit too    Somebody else has marked our rows, or a statement of a
few rows, or a mark      former leader id took effect late: force-remark.
returns rows that wait
here already
producer broken          It is discarded, its records count as in flight no
                         more, force-remark, and the next one is built.
lease over               Stand down: forget the queue, discard the producer.
table out of reach       Try on; after a deadline, resign leadership.
another cluster's rows   Waited too long for their own relay: the sweep finds them
                         (`takeover.py`), and they go behind this cluster's own.
=======================  ====================================================

Two differences from the reference are deliberate. There, every failed
delivery refreshes the leader id and so stops all lanes; here it resets its
own lane only, because marks and resets share one fiber and so cannot race.
And there a busy key stops the marker; here its followers wait in a queue of
their own.
"""
