"""
The way to the table and back: a port `Outbox` that meets faults.

The server works on a statement whatever becomes of the client meanwhile: it
may freeze, die or give up waiting, and the statement still takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from django_outbox.exceptions import (
    DatabaseBusy,
    DatabaseError,
    DatabaseReadOnly,
    DatabaseUnavailable,
)
from django_outbox.message.pauses import Pauses
from django_outbox.message.record import Failure, KeyToRead, Record, Sweep

from .timing import LOCK_TIMEOUT, STATEMENT_TIMEOUT

if TYPE_CHECKING:
    from .process import Process

Answer = TypeVar("Answer")


class Connection:
    """One thread's view of the table; it blocks that thread only."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._table = process.world.table

    # The port.

    def begin(self) -> None:
        """Marks are in the table."""

    def timeline(self) -> str:
        return ""

    def pauses(self) -> Pauses:
        return Pauses.of(self._world.paused)

    def mark(
        self, leader_id: str, *, limit: int, sweep: Sweep | None = None
    ) -> list[Record]:
        self._world.promises.on_act(self._process, leader_id, "marks")
        self._be_writable()
        records = self._execute("mark", lambda: self._table.mark(leader_id, limit))
        if records and self._world.dice.random() < 0.5:
            # A page of rows takes its time to arrive, and much goes on meanwhile.
            self._process.sleep(self._world.dice.uniform(0.0, 0.03))
        return records

    def reset(self, leader_id: str, keys: Sequence[KeyToRead]) -> None:
        names = [key for key, _ in keys]
        self._be_writable()
        self._execute("reset", lambda: self._table.reset(leader_id, names))

    def purge(self, leader_id: str | None, records: Sequence[Record]) -> int:
        ids = [record.id for record in records]
        return self._write("purge", ids, lambda: self._table.purge(leader_id, ids))

    def fail(self, leader_id: str, failures: Sequence[Failure]) -> int:
        ids = [failure.record.id for failure in failures]
        return self._write("fail", ids, lambda: self._table.fail(leader_id, failures))

    def park(self, leader_id: str, failures: Sequence[Failure]) -> int:
        ids = [failure.record.id for failure in failures]
        return self._write("park", ids, lambda: self._table.park(leader_id, failures))

    def kept(self, leader_id: str | None, records: Sequence[Record]) -> set[int]:
        ids = [record.id for record in records]
        return self._execute("kept", lambda: self._table.kept(leader_id, ids))

    def locked(self, records: Sequence[Record]) -> set[int]:
        ids = [record.id for record in records]
        return self._execute("locked", lambda: self._world.row_trouble.locked(ids))

    def ping(self) -> None:
        if self._execute("ping", lambda: self.is_read_only):
            raise DatabaseReadOnly("the database is read-only")

    @property
    def is_read_only(self) -> bool:
        """Whether the server tells that it refuses writes."""
        return self._world.time() < self._world.away_until["writes"]

    # The network and the server.

    def _be_writable(self) -> None:
        if self._world.time() < self._world.away_until["writes"]:
            self._process.sleep(0.001)
            self._world.trace(self._process.name, "is refused to write")
            raise DatabaseReadOnly("the database is read-only")

    def _write(
        self, name: str, ids: Sequence[int], statement: Callable[[], int]
    ) -> int:
        """Write rows, unless one of them is locked or refused."""
        trouble = self._world.row_trouble
        self._be_writable()
        answer = self._execute(name, lambda: trouble.met(name, ids) or statement())
        if isinstance(answer, DatabaseError):
            if isinstance(answer, DatabaseBusy):
                self._process.sleep(LOCK_TIMEOUT)
            raise answer
        return answer

    def _execute(self, name: str, statement: Callable[[], Answer]) -> Answer:
        """Send a statement and wait for its answer."""
        world, weather = self._world, self._world.weather
        if self._process.node.is_cut_from("table"):
            if world.dice.random() < 0.3:
                # Nobody answers, and nobody says so either.
                self._process.sleep(world.dice.uniform(0.0, STATEMENT_TIMEOUT))
            self._fail(name, "no connection")
        luck = world.dice.random()
        if luck < weather.statement_refused:
            world.count("statement refused")
            self._fail(name, "refused")
        luck -= weather.statement_refused
        if luck < weather.statement_unanswered:
            world.count("statement unanswered")
            self._lose_answer(name, statement)
        luck -= weather.statement_unanswered
        if luck < weather.statement_slow:
            world.count("statement slow")
            return self._wait(name, statement)
        return self._run(name, statement)

    def _run(self, name: str, statement: Callable[[], Answer]) -> Answer:
        answer = statement()
        if self._world.is_tracing:
            self._world.trace(self._process.name, f"{name} -> {_short(answer)}")
        return answer

    def _wait(self, name: str, statement: Callable[[], Answer]) -> Answer:
        """Pass the time until the answer is there; the server may go away."""
        answers: list[Answer] = []
        process, time, dice = self._process, self._world.time, self._world.dice
        answered = dice.uniform(0.0, 0.9 * STATEMENT_TIMEOUT)
        there = answered * dice.random()
        is_sent = dice.random() < 0.5

        def arrive() -> None:
            if process.is_frozen and not is_sent:
                # The pause came between the look at the term and the act.
                time.after(process.thaw_at - time(), arrive)
            elif not process.node.is_cut_from("table"):
                answers.append(self._run(f"{name}, slow", statement))

        time.after(there, arrive)
        process.sleep(answered)
        if not answers or self._process.node.is_cut_from("table"):
            self._fail(name, "the connection broke")
        return answers[0]

    def _lose_answer(self, name: str, statement: Callable[[], object]) -> None:
        """Let the statement take effect now, later or never, and say nothing."""
        dice = self._world.dice
        late = dice.uniform(0.0, STATEMENT_TIMEOUT)
        when = dice.choice((None, 0.0, late, late))
        if when is not None:
            self._world.time.after(
                when, lambda: self._run(f"{name}, unanswered", statement)
            )
        self._process.sleep(dice.choice((0.001, dice.uniform(0.0, STATEMENT_TIMEOUT))))
        self._fail(name, "no answer")

    def _fail(self, name: str, reason: str) -> None:
        self._world.trace(self._process.name, f"{name} failed: {reason}")
        raise DatabaseUnavailable(reason)


def _short(answer: object) -> object:
    """Show records by their ids, and names in an order."""
    match answer:
        case list():
            return [record.id for record in answer]
        case (frozenset() as names, _):
            return sorted(names)
    return answer
