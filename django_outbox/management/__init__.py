"""
The commands of `manage.py`, and what `manage.py outbox` prints.

`commands/` parses arguments; `status.py` and `identity.py` make the reports of the
subcommands of the same names.
"""
