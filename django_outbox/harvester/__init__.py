"""
One process of those that harvest an outbox: composition and lifecycle.

The flow, from a command to the threads:

===============  ============================================================
process.py       runs a harvester as a process: signals, exit codes, metrics,
                 `--drain`; an application that embeds one does without it
start_checks.py  what a process examines at its start: the doctor's warnings, and
                 REQUIRE_DURABLE_TOPICS
harvester.py     start, stop, join; reads Django's settings, and asks the
                 database which outbox this is
adapters.py      factories for everything that speaks to PostgreSQL or Kafka
wiring.py        builds the components of one run, for either delivery mode
components.py    what it builds: elector, workers, meter, releaser, listener
threads.py       runs each component on its thread; publishes events; ends
                 everything in order
workers.py       one relay worker: a dispatcher, and the threads that
                 access the table for it
notifier.py      delivers events to the application's receivers
hooked_table.py  passes records through MIDDLEWARE as they are read
monitoring.py    health and metrics over HTTP
===============  ============================================================

Here the protocols (`election/`, `relay/`) meet their adapters (`kafka/`,
`postgres/`); the protocols do not know their adapters.
"""
