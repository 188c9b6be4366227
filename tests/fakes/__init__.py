"""
Fakes behind the ports of the election and the relay, for tests without services.

They pass the scenarios that the real adapters pass (`tests/contracts`).

- `timeline.py`: a clock that only a test moves.
- `coordinator.py`: the broker's side of the leader group; `client.py`: one member's
  client; `membership.py`: the port, and the group that joins them.
- `outbox.py`: a table whose rows are marked; `unmarked.py`: one for relays without
  marks.
- `producer.py`: the log and its producer; `transactor.py`: the broker's side of
  transactions; `transactions.py`: the transactional producer.
"""
