"""
What `demo.py` shows.

`workers.py` runs harvester processes and hears their events, `ledger.py`
places orders and compares them with what Kafka holds, `lake.py` audits,
`show.py` directs them; `verdict.py` prints the result.

With `--clusters`, `clusters.py` directs instead: `traffic.py` writes to each
cluster and counts what comes out of Kafka, `board.py` shows it live.
"""
