"""
What `demo.py` shows.

`show.py` directs two acts. `outbox.py` is the first: `workers.py` runs
harvester processes and hears their events, `relay/ledger.py` places orders and
compares them with what Kafka holds. `lake.py` is the second: it audits.
`liveline.py` tells how it goes, `verdict.py` prints the result.

With `--clusters`, `clusters/cluster_ids.py` directs instead: `traffic.py` writes
to each cluster and counts what comes out of Kafka, `board.py` shows it live.
"""
