"""
The data pipeline on Spark: topics become lake tables, each record once.

    Kafka ─ ingest ─▶ bronze ─ refine ─▶ silver, late, latest, quarantine
    ▲                   └──────── audit ◀───────┤
    └──────────────────── replay ◀──────────────┘

`ingest.py` copies what the topics hold, as bytes, into `bronze`; Delta's own
transaction log makes that exactly once. `refine.py` reads `bronze` and tells
each record apart by the **high-water mark** of its key: the relay promises
ascending ids for each (source, topic, key), so a record whose id is above its
key's highest so far is new, and any other is either a copy, which goes, or
has come out of order, which is kept in `late` and never dropped. The marks
are the ids in `latest`, the newest state of each key, so there is no state
that could expire or grow with time.

A batch that is cut off anywhere is run again with the same rows. What it had
already appended is skipped, because each append carries the number of its
batch; `latest` takes larger ids only, whoever brings them, and comes last:

    quarantine ─ silver ─ late ─ latest

`maintain.py` deletes, compacts and vacuums meanwhile, but of bronze only what
has been read: the order of its rows is refine's whole knowledge.

Nothing here imports Django or a database driver: executors have neither.
`session.py` alone builds a session and names Java archives, `tables.py`
alone knows where tables lie.
"""
