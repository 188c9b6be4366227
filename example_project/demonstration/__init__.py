"""
What `demo.py` shows, in three parts.

`workers.py` runs harvester processes and hears their events, `ledger.py`
places orders and compares them with what Kafka holds, `show.py` directs both
and prints the result.
"""
