"""
Parts for projects that want them; the rest of the package does not import them.

Work that only one process at a time may do, the leader's: `celery.py` makes a function
a periodic Celery task; `singleton.py` starts and stops such work when leadership
changes; `fencing.py` keeps the current leader id in a table, and opens transactions
only for that leader. `shared_beat.py` lets several processes of Celery beat share one
schedule, without a leader.

Tasks that a transaction starts: `stashed_tasks.py` for Celery, `task_backend.py` for
`django.tasks`. `broker_confirms.py` checks that Celery's broker tells what it got.

The context of a request on messages and log records: `context.py`; on Celery tasks:
`celery_context.py`.

Handlers whose messages are handled again later when they fail: `retry_topics.py`.

Topics that are declared once: `contracts.py`, with a name that may have variables from
`topic_names.py`; `value_codecs.py` makes JSON of their values, `cloud_events.py` the
headers of CloudEvents. With schemas in a registry: `registered_schemas.py` has the
encodings, `registered_avro.py` that of Avro, `registered_codec.py` what they share,
`schema_registry.py` the client, and `schema_checks.py` finds what is not registered.

Values on their way, classes for MIDDLEWARE: `compression.py`, `encryption.py`,
`shredding.py` for values that can be erased by deleting a key, `claim_check.py` for
large values in a storage; `payload_headers.py` is what they share.

Models that publish: `publishing.py` has the decorator and receives Django's signals;
`publications.py` makes messages of rows, from their declarations; `stored_rows.py`
reads a row again where the object differs; `publishing_manager.py` covers bulk
operations, which send no signals; `publishing_checks.py` finds what is not covered.

Other ways to write: `unique_messages.py` writes a message once for each unique key;
`late_ids.py` writes right before the commit, which `commit_hooks.py` makes possible for
a database backend, such as the one in `postgresql/`.
"""
