"""
The way back to Kafka: replay of the lake, backfill of a business table.

`history.py` (replay) selects records of `silver` with `selection.py`, and sends
them ordered by id for each key. `business_table.py` (backfill) reads a table
with `snapshot.py` and turns its rows into messages; `position.py` finds the
point in the outbox's history that the snapshot belongs to. Both send with
`sending.py`.
"""
