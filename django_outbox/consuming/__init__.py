"""
Consuming safely: each message has its effects once, however often it comes.

Kafka and a database share no transaction, so one of two notes is late: that a
message has been read (an offset), or what it did. Here the effects come first
and the offset later; a crash in between brings the message back, and a key in
the table of processed messages tells that it is not new:

    poll ─ begin ─ claim (consumer, key) ─ handler ─ commit ─ offset to Kafka
                   └ there already? skip the handler ┘

- `idempotence.py`: `once()`, the transaction around claim and handler.
- `keyfield.py`: the same inside one row, for entities that change often.
- `registry.py`: `@consumer`, which handlers there are and what they promise.
- `effects.py`: one message into the database, with its offset if that is kept
  there (setting OFFSETS); `working.py`: until it is done or given up.
- `transforming.py`: handlers without a database; their output (`output.py`)
  and their offsets are one Kafka transaction.
- `runner.py`: polls, lets one of the two work, tells how far it is
  (`progress.py`); `ports.py`: what they need of Kafka.
- `pruning.py`: the leader forgets keys that are too old.
- `process.py`: builds it all, signals, exit codes; `manage.py runconsumer`
  parses and calls it.

Whatever a handler stashes commits with its effects, so that a chain Kafka,
database, outbox, Kafka is exactly once in its effects.
"""
