"""The only package that imports psycopg: the outbox table behind relay's ports."""
