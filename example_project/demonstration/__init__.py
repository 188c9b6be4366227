"""
The acts of `demo.py`.

`show.py` runs two acts. `outbox.py` is the first: `workers.py` runs harvester
processes and reads their events, `ledger.py` places orders and compares them
with the messages in Kafka. `lake.py` is the second: it loads and audits a lake.
`liveline.py` shows progress, `verdict.py` prints the result.

With `--clusters`, `clusters.py` runs instead: `traffic.py` writes to each
cluster and counts the messages in Kafka, `board.py` shows the counts live.
"""
