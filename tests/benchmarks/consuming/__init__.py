"""
A project that consumes, as a benchmark runs it.

- `settings.py`: the settings of `runconsumer`.
- `consumers.py`: its handler.
- `by_hand.py`: the same effects in a loop of its own, without us.
"""
