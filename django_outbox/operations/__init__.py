"""
Care for the outbox's tables: what operators run, and what the leader does itself.

=================  ==========================================================
archiving.py       the leader creates and drops partitions of the archive
pruning.py         the leader deletes old keys of processed messages
grants.py          `manage.py outbox grants`: least privileges as SQL
offsets.py         `manage.py outbox rewind`: stored offsets of a group
open_series.py     `manage.py outbox series`: list, release, discard
=================  ==========================================================
"""
