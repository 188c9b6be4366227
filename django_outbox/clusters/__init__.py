"""
Several clusters share the work of one outbox that is replicated between them.

===================  ========================================================
cluster_ids.py       how rows and ids of one cluster are numbered, whether a
                     database does so, and the SQL that makes it
cluster_status.py    the clusters' part of `manage.py outbox status`
===================  ========================================================

Which cluster relays a record, and when another takes it over, is a rule of the
relay: `relay/takeover.py`.
"""
