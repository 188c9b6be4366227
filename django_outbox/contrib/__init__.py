"""
Parts for projects that want them; the rest of the package does not import them.

Work that only one process at a time may do, the leader's: `celery.py` makes a function
a periodic Celery task; `singleton.py` starts and stops such work when leadership
changes; `fencing.py` keeps the current leader id in a table, and opens transactions
only for that leader. `shared_beat.py` lets several processes of Celery beat share one
schedule, without a leader.

Tasks that a transaction starts: `stashed_tasks.py` for Celery, `task_backend.py` for
`django.tasks`.

The context of a request on messages and log records: `context.py`; on Celery tasks:
`celery_context.py`.

Topics that are declared once: `contracts.py`, with a name that may have variables from
`topic_names.py`; `cloud_events.py` makes the headers of CloudEvents.

Models that publish: `publishing.py` has the decorator and receives Django's signals;
`publications.py` makes messages of rows, from their declarations; `stored_rows.py`
reads a row again where the object differs; `publishing_manager.py` covers bulk
operations, which send no signals; `publishing_checks.py` finds what is not covered.
"""
