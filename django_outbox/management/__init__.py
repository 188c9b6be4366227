"""
The commands of `manage.py`, and what `manage.py outbox` prints.

===================  ===========================================================
commands/            one module for each command
report_verbs.py      `status`, `leader`, `settings` and `doctor` only look
record_verbs.py      park, skip and release single records
pause_verbs.py       hold records back
live_verbs.py        what goes on now, and what is sent again
dead_letter_verb.py  dead letters of a topic
series_verb.py       open series
prune_verb.py        old rows of the archive, or of processed messages
rewind_verb.py       stored offsets of a group
grants_verb.py       least privileges as SQL
cluster_verb.py      one of several clusters
identity_verb.py     which outbox this is
answer.py            the output of a verb: lines, or one JSON document
status.py            the report of `status`; doctor_report.py has that of `doctor`
top_screen.py        what `top` shows; top_lines.py draws it as lines
times.py             ages and moments in arguments
confirmation.py      asks before something is dropped
===================  ===========================================================

Each module of verbs adds its parsers, which name the function to run.
"""
