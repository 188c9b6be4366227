"""
The data pipeline on Spark: topics become lake tables, each record once.

    Kafka ─ ingest ─▶ bronze ─ refine ─▶ silver, late, latest, quarantine
    ▲                   └──────── audit ◀───────┤
    └──────────────────── replay ◀──────────────┘

`lake/ingest.py` copies the topics as bytes into `bronze`; Delta's transaction
log makes that exactly once. `lake/refine.py` reads `bronze` and compares each
record with the **high-water mark** of its key. The relay promises ascending
ids for each (source, topic, key). A record with an id above the mark is new.
Any other record is either a duplicate, which is dropped, or out of order,
which goes to `late` and is never dropped. The marks are the ids in `latest`,
the newest state of each key, so no state expires or grows with time.

An interrupted batch runs again with the same rows. Each append carries the
number of its batch, so Delta skips appends that it has already committed.
`latest` only accepts larger ids, and is written last:

    quarantine ─ late ─ silver ─ latest

`lake/maintenance.py` deletes, compacts and vacuums while the pipeline runs.
It never deletes rows of bronze that refine has not read.

Kafka gives a topic that is created again another id. `lake/read_positions.py`
keeps the ids that ingest reads, which the driver asks for with
`kafka_admin.py`; ingest stops when one has changed. `kafka_errors.py` reads what
Spark's errors say of Kafka. `lake/topic_reset.py`
starts a topic over, and `lake/topic_repair.py` appends rows that bronze lacks.

`audit/` compares database, topics and lake. `resend/` sends records back to
Kafka: from the lake (replay) or from a business table (backfill). `payloads/`
decodes Avro and Protobuf values into columns.

`__main__.py` parses the command line, `commands/` has one module per command,
and `pipeline_settings.py` builds the settings. `session.py` opens the Spark
session; no other module knows about Java archives. `pipeline_run.py` starts
ingest and refine and supervises them, `query_progress.py` reports their
batches, and `diagnosis.py` is `doctor`.

Nothing here imports Django or a database driver, because Spark's executors
have neither.
"""
