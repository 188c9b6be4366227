"""
Consuming safely: each message has its effects once, however often it arrives.

Kafka and a database share no transaction, so either the offset or the effects
of a message are stored first. Here the effects come first and the offset
later. After a crash in between Kafka delivers the message again, and its key in
the table of processed messages shows that it is a repeat:

    poll ─ begin ─ claim (consumer, key) ─ handler ─ commit ─ offset to Kafka
                   └ there already? skip the handler ┘

The flow through the modules, from the command to Kafka:

- `handlers.py`: `@consumer` declares a handler; `find_group()` collects them.
- `consumer_process.py`: `manage.py runconsumer` calls its `run()`, which builds
  everything from the settings, handles signals and returns the exit code.
- `runner.py`: the loop: poll, work, commit, report. It also decides where
  partitions start, and waits while Kafka or the database is away.
- `working.py`: the worker of handlers with effects. `effects.py` runs one
  message in a transaction of the database, with its offset if OFFSETS is
  "database"; `stored_offsets.py` checks such offsets against their partitions.
  `handler_exits.py`: a handler that ends the process has failed. `outages.py` tells
  an outage from a failure.
- `transforming.py`: the worker of handlers without a database. Their output
  (`output.py`) and their offsets are one Kafka transaction.
- `consumer_context.py`: what both workers share; `dead_letters.py` and
  `reasons.py`: what becomes of a message whose attempts are spent.
- `consumer_progress.py`: counts, events and the lag. `consumer_monitoring.py`: health
  and metrics over HTTP.
- `connections.py`: when database connections close. `resending.py`: lists dead letters
  and sends them again.
- `ports.py`: what all of them need of Kafka; `django_outbox.kafka` implements it.

The transaction around claim and handler is `django_outbox.idempotence`; the
leader deletes old keys (`django_outbox.operations`).

Messages that a handler stashes commit with its effects, so a chain of Kafka,
database, outbox and Kafka is exactly once in its effects.
"""
