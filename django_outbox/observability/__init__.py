"""
How people and machines watch a harvester or a consumer.

Most parts are observers: callables that take an `Event` on the thread where it
happened and return at once. `presentation.py` chooses them for a command:

===================  ===========================================================
eventlog.py          events and the log as JSON lines, or events as log messages
textlog.py           the log as lines for people
terminal.py          live lines and the progress of `--drain`, with `rich`
console.py           the log above a live line
process_status.py    what a process knows of its outbox and of itself
consumer_status.py   what a consumer knows of itself
message_times.py     how long its messages take
deliveries.py        how long records took until Kafka had them, and their spans
endpoints.py         health and metrics over HTTP
figures.py           figures as Prometheus metrics
metrics.py           the figures of a harvester
consumer_metrics.py  ... and of a consumer
tracing.py           traces that pass through the outbox
===================  ===========================================================
"""
