"""
The commands of `python -m django_outbox.pipeline`, one a file.

Each module has `add()`, which gives the command its options, and a function
that runs it: parsed options and the caller's defaults in, exit code out.
"""
