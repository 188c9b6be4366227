"""
A harvester for applications without Django: `python -m django_outbox reap`.

=================  ==========================================================
yaml_file.py       reads a reaper.yaml, every scalar as text
configuration.py   which database, table, name and log level it describes
translation.py     goharvest's limits and Kafka properties as our settings
reaper.py          builds a harvester from the result and runs it
=================  ==========================================================
"""
