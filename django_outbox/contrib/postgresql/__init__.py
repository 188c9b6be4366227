"""A database backend, to be named in DATABASES: PostgreSQL with `stash_at_commit()`."""
