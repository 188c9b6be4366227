"""
The commands of `python -m django_outbox.pipeline`, one module each.

`add()` registers a command with its options. `execute()` runs it: it takes the
parsed options and the caller's default settings, and returns the exit code.
"""
