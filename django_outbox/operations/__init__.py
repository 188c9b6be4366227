"""
Care for the outbox: what operators see and do, and what the leader does itself.

`manage.py outbox` and the admin call the same functions here.

======================  =====================================================
by_hand.py              park, skip and release single records
pausing.py              pause and resume topics, keys, or everything
replaying.py            send archived records again
live_reading.py         one reading for `outbox top` and for the live page
leader.py               which process leads now
tailing.py              new records as they come
archiving.py            the leader creates and drops partitions of the archive
pruning.py              the leader deletes old keys of processed messages
grants.py               the least privileges of each role, as SQL
effective_settings.py   `manage.py outbox settings`: values and their origin
examination.py          `manage.py outbox doctor`: reads facts, applies rules
finding.py              what a finding is; all of them are in finding_kinds.py
durability.py           whether a topic keeps what Kafka has acknowledged
topic_rules.py          other settings of topics and brokers
client_rules.py         the outbox's own settings, and its election
database_health.py      the database; needed_privileges.py has the rights
======================  =====================================================

The rules are pure: facts in, findings out. The readers in `kafka/` and `postgres/`
return facts.
"""
