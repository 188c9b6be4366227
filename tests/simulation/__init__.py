"""
A seeded simulator of whole outboxes under faults.

`world.py` plays one history: `plan.py` says what befalls it, `promises.py`
judges it. docs/concepts/simulation.md tells what is real in it and what is not.
"""
