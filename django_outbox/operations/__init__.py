"""
Care for the outbox: what operators see and do, and what the leader does itself.

`manage.py outbox` and the admin call the same functions here.

=================  ==========================================================
by_hand.py         park, skip and release single records
replaying.py       send archived records again
live_reading.py    one reading for `outbox top` and for the live page
leader.py          which process leads now
tailing.py         new records as they come
archiving.py       the leader creates and drops partitions of the archive
pruning.py         the leader deletes old keys of processed messages
grants.py          `manage.py outbox grants`: least privileges as SQL
offsets.py         `manage.py outbox rewind`: stored offsets of a group
open_series.py     `manage.py outbox series`: list, release, discard
=================  ==========================================================
"""
