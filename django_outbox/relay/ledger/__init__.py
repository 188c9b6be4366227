"""
The ledger relay: how records reach Kafka exactly once, in the order of their ids.

The setting DELIVERY = "exactly-once" puts it in the place of MP/R. Nothing in
this package knows Django, a driver, a broker or a clock: `ports.py` names
what it needs, and a seeded simulator (tests/simulation) drives it.


The gap, and how it is closed
=============================

A database and a broker share no transaction: between the commit in Kafka and
the purge in the table a crash leaves it open whether a row is sent. So every
Kafka transaction also carries a *ledger record*: which rows it holds, and
which of earlier transactions were not purged yet. Whoever leads next reads the
last committed ledger, purges what it lists, and only then looks at the table.

::

    table ── look ──▶ buffer ── batch ──▶ one Kafka transaction ──▶ commit
      ▲    (finder.py)     (relay.py)       records + ledger           │
      │                                     + group generation         │
      └── purge (id and message id) ◀── settlement ◀───────────────────┘

Three parts as with MP/R, but on two threads (`harvester/workers.py`), since the
dispatcher waits for transactions:

=====================  ======================================================
dispatch.py            check leadership · open (fence, read the ledger) · ask
                       for rows · one transaction at a time
finder.py              reads the next rows, without marking them (gaps.py)
relay/settle.py        purges what is committed, notes and parks what failed
=====================  ======================================================


What holds
==========

*Each record once.* Rows are in the table, or in a committed transaction, or
in both and then in the ledger. A ledger is dropped only by a later one, and
that one lists all whose purge had not been confirmed when it was written.
Rows are known by id *and* message id: ids are given again after an
asynchronous failover, message ids never.

*In the order of ids.* One page is one snapshot, in id order; a transaction
takes the buffer from its head; and a record that cannot be sent holds its
lane: followers are passed over and read again once it has gone.

*Nobody else's transaction.* Opening takes the shard's `transactional.id`
over, which aborts what the former leader left open. Each transaction also
commits an offset of the leader topic under the leader's group generation
(KIP-447), so that a deposed leader that wakes up and opens anew is refused by
the broker, and cannot fence its successor in turn.

*Nothing is guessed.* A commit that timed out, or met a disconnect, has an
unknown outcome, and a delayed one could even end the next transaction. So the
client is dropped, and another opened: it waits for the broker to end what was
under way, and the ledger tells how it ended. All that is in memory is
forgotten, and a new *run* begins at the head of the table.

*Several clusters.* The books are those of an origin, whoever relays its
records: clusters that share a Kafka share its `transactional.id` and its
ledger. A harvester has a line (all three) for its own records, and one for each
other cluster's, which only looks until there is something to take over
(takeover.py). Purges of others come late or never, so where there are several
clusters the ledger also says which ids were ever committed under it
(relayed.py): what is found and is among them is purged, not sent.

*A new timeline.* After a failover to a standby that lagged behind, rows are
back and ids are given again. The ledger names the history (system identifier
and timeline) that it speaks of; under another one it is void, and all that is
in the table is sent.
"""
