"""
The commands of `manage.py`, and what `manage.py outbox` prints.

`commands/` parses arguments; `status.py`, `identity.py` and `doctor_report.py` make the
reports of these verbs. `record_verbs.py`, `pause_verbs.py`, `live_verbs.py` and
`dead_letter_verb.py` have verbs with their options. `top_screen.py` and `top_lines.py`
draw what `top` shows, `times.py` reads ages and moments, and `confirmation.py` asks
before something is dropped.
"""
