"""
Exactly-once delivery: each record once, in the order of the ids.

The setting DELIVERY = "exactly-once" puts transactions in the place of the pipeline;
everything else of the relay is the same.


The gap, and how it is closed
=============================

A database and a broker share no transaction: after a crash between the commit in
Kafka and the purge in the table, the table does not tell whether a row was sent. So
every Kafka transaction also carries a *ledger record*: which rows it holds, and
which rows of earlier transactions were not purged yet. The next leader reads the
last committed ledger, purges the rows that it lists, and only then reads the table.

=======================  ====================================================
ledger_sender.py         opens (fences, reads the ledger), sends one transaction
                         after the other, and says what the outcome means
takeover_sender.py       the same for another cluster's records
committed_ids.py         which ids were ever committed, for several clusters
timelines.py             whether a ledger is of the table's timeline
ports.py                 the transactions that it needs, and the ledger
=======================  ====================================================


What holds
==========

*Each record once.* Rows are in the table, or in a committed transaction, or
in both and then in the ledger. A ledger is dropped only by a later one, and
that one lists all whose purge had not been confirmed when it was written.
Rows are known by id *and* message id: ids are given again after an
asynchronous failover, message ids never.

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
ledger. A harvester has a worker for its own records, and one for each other cluster's,
which only reads until there is something to take over. Purges of others arrive late or
never, so with several clusters the ledger also lists which ids were ever committed
under it: rows with these ids are purged, not sent.

*Another number of shards.* Leaders that divide the keys differently have other
`transactional.id`s. A leader announces its number before its first ledger, so that a
partition of the ledger topic always tells whose transactions may be open. One that
opens fences all of another number, takes over what their ledgers list, and passes over
what the ledgers of its neighbours list.

*A new timeline.* After a failover to a standby that lagged behind, rows are
back and ids are drawn again. The ledger names the timeline of the database (system
identifier and timeline) that it belongs to; on another one it is void, and every row
in the table is sent.
"""
