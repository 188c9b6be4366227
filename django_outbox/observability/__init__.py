"""
How people and machines watch a harvester.

Each part here is an observer: a callable that takes an `Event` on the thread
where it happened, returns at once and never raises on purpose. `runharvester`
chooses them; the application's own receivers come through `signals.py`.
"""
