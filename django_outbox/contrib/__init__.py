"""
Work of an application that only one process at a time may do: the leader's.

`celery.py` makes a function a periodic Celery task; `singleton.py` starts and stops
such work when leadership changes; `fencing.py` keeps the current leader id in a
table, and opens transactions only for that leader. The rest of the package does not
import them.
"""
