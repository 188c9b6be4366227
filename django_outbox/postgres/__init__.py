"""
PostgreSQL behind the relay's ports: psycopg for harvesters and consumers.

===================  ========================================================
connection.py        one connection for one thread; replaced after an error
deadlines.py         waits for a socket or a call, with a time-out
errors.py            the driver's errors as ours
queries.sql          every statement, each under its name
statements.py        fits the statements to one table and its columns
parameters.py        how ids are handed to statements
takeover_sql.py      the rank order of takeovers as SQL fragments
shard_sql.py         which rows a shard has, as an SQL fragment
outbox_table.py      what all adapters of the table do: settle, measure, identity
marked_table.py      reads rows by marking them: MP/R as in the reference
unmarked_table.py    reads rows by position, for marks in memory
staged_tables.py     delayed messages and series: moves what is due
opening_claim.py     opens a consumer's transaction with its claim
listening.py         LISTEN: learns of commits by writers that notify
health_reader.py     what the doctor wants to know, as database_facts.py
outbox_identity.py   which outbox this is, and the names derived from it
outbox_schema.py     in which schema it is, for SQL that is printed
===================  ========================================================

The flow of one call: an adapter opens a session of its connection, runs a statement
of `queries.sql`, and the session translates the driver's error. Each write is one
statement, and atomic; a read may need several.
"""
