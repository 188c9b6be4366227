"""
Idempotence: the effects of a message are applied once, however often it arrives.

- `once.py`: `once()` runs a block or a function in a transaction that claims
  (consumer, key) in the table of processed messages.
- `keyfield.py`: `IdempotentModel.apply_once()` keeps the keys inside the entity
  that changes, for entities that change often.
- `claims.py`: valid keys and the `Run` that a block is given, which both share; for
  `once()` also the check that no error was swallowed.
- `async_thread.py`: the thread of an async block, and so its connections.
"""
