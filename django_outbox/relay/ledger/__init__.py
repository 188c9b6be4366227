"""
The ledger relay: how records reach Kafka exactly once, in the order of their ids.

The setting DELIVERY = "exactly-once" puts it in the place of MP/R. This package
knows neither Django nor a driver, a broker or a clock: `ports.py` says what it
needs, and a seeded simulator (tests/simulation) drives it.


The gap, and how it is closed
=============================

A database and a broker share no transaction: after a crash between the commit in
Kafka and the purge in the table, the table does not tell whether a row was sent. So
every Kafka transaction also carries a *ledger record*: which rows it holds, and
which rows of earlier transactions were not purged yet. The next leader reads the
last committed ledger, purges the rows that it lists, and only then reads the table.

::

    table ── page ──▶ buffer ── batch ──▶ one Kafka transaction ──▶ commit
      ▲ (page_reader.py) (ledger_relay.py)  records + ledger           │
      │                                     first: + generation        │
      └── purge (id and message id) ◀── settlement ◀───────────────────┘

Three parts as with MP/R, but on two threads, since the dispatcher waits for
transactions:

=====================  ======================================================
ledger_dispatcher.py   checks leadership · opens (fences, reads the ledger) ·
                       requests pages · one transaction at a time
page_reader.py         reads the next rows without marking them
                       (`relay/memory_marks.py`, `relay/gaps.py`)
relay/settler.py       purges what is committed, notes and parks what failed
=====================  ======================================================

The decisions are in:

=======================  ====================================================
ledger_relay.py          what to send next, and what the outcome means
blocked_keys.py          keys whose record failed; their followers wait
committed_ids.py         which ids were ever committed, for several clusters
timelines.py             whether a ledger is of the table's timeline
stage.py                 how far a run has come
takeover_dispatcher.py   the dispatcher for another cluster's records
=======================  ====================================================


What holds
==========

*Each record once.* Rows are in the table, or in a committed transaction, or
in both and then in the ledger. A ledger is dropped only by a later one, and
that one lists all whose purge had not been confirmed when it was written.
Rows are known by id *and* message id: ids are given again after an
asynchronous failover, message ids never.

*In the order of ids.* One page is one snapshot, in id order; a transaction
takes the buffer from its head; and a record that cannot be sent blocks its
key: followers are skipped and read again once it has been sent.

*No other leader's transaction.* Opening takes the shard's `transactional.id`s
over, which aborts what the former leader left open. The first transaction after
that of each client also commits an offset of the leader topic under the leader's
group generation (KIP-447), so that a former leader that resumes and opens again is
refused by the broker, and cannot fence its successor in turn.

*Nothing is guessed.* A commit that timed out, or met a disconnect, has an
unknown outcome, and a delayed one could even end the next transaction. So the
clients are closed, and others opened: they wait until the broker has ended the
transaction, and the ledger tells how it ended. Everything in memory is
forgotten, and a new *run* begins at the head of the table.

*Several clusters.* A ledger belongs to a source cluster, no matter which cluster
relays its records: clusters that share a Kafka share its `transactional.id`s and its
ledger. A harvester has a worker (all three parts) for its own records, and one for
each other cluster's, which only reads until there is something to take over. Purges
of others arrive late or never, so with several clusters the ledger also lists which
ids were ever committed under it: rows with these ids are purged, not sent.

*A new timeline.* After a failover to a standby that lagged behind, rows are
back and ids are drawn again. The ledger names the timeline of the database (system
identifier and timeline) that it belongs to; on another one it is void, and every row
in the table is sent.
"""
