"""
The tables of the lake, and the queries that fill and maintain them.

    Kafka ─ ingest.py ─▶ bronze ─ refine.py ─▶ quarantine ─ late ─ silver ─ latest

`tables.py` defines the tables. `ingest.py` appends the records of the topics
to `bronze`, as bytes. `refine.py` reads `bronze` in batches: `records.py`
parses headers and payloads, `classification.py` decides whether a record is
new, a duplicate or late, and `batch_writer.py` writes the batch to the other
tables. `typed_tables.py` adds a table for each topic with a schema, and
`catalog.py` registers all tables by name.

`epochs.py` orders ids that began again, and `rebuilding.py` makes all tables but
`bronze` again. `restored_checkpoint.py` refuses a checkpoint from a copy.
`topic_ids.py` notices a topic that was created again. `topic_reset.py` starts a
topic over, at what `read_positions.py` stores, and `topic_repair.py` appends the
records that ingest has passed and `bronze` lacks.

`maintenance.py` deletes, compacts and vacuums (`vacuum.py`) while both run.
`reader.py` tells it how far refine has read, and `conflicts.py` retries writes
that meet another writer. `run_lease.py` refuses a second run, and `forgetting.py`
erases a key.
"""
