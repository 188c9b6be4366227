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
endpoints.py         health and metrics over HTTP
metrics.py           Prometheus metrics of a harvester
consumer_metrics.py  ... and of a consumer
total.py             a counter of what events count
answer.py            the output of `manage.py outbox`: lines, or one JSON document
===================  ===========================================================
"""
