"""
What an application builds on a leader, beyond moving records.

`leadership.py` keeps who leads in a table, so that work can be fenced by it;
`singleton.py` starts and stops periodic work as signals arrive; `celery.py`
makes that work a Celery task. Nothing in the rest of the package imports them.
"""
