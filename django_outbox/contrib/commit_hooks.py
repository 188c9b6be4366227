"""
What runs right before a commit, for database backends.

Django has hooks for after a commit only. A subclass of a backend may override
`commit()`, through which every commit of an atomic block goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _Backend = BaseDatabaseWrapper
else:
    _Backend = object


class BeforeCommit:
    """
    One thing to do right before the commit; pass it to `transaction.on_commit()`.

    Django then forgets it when its savepoint rolls back. All with the same `write` are
    done together, in their order.

    Args:
        write: Gets the connection and the `what` of each of them.
        what: Anything.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        write: Callable[[BaseDatabaseWrapper, Sequence[Any]], None],
        what: object,
    ) -> None:
        self.connection = connection
        self.write = write
        self.what = what

    def __call__(self) -> None:
        """Be run by a test that captures what follows a commit, but never commits."""
        self.write(self.connection, [self.what])


class CommitHooks(_Backend):
    """For a backend of your own: `class DatabaseWrapper(CommitHooks, ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waited_at: dict[str, int] = {}
        """How many callbacks waited when a savepoint was created; those of which none
        did are left out."""

    def savepoint(self) -> str | None:
        """Create a savepoint; note what waits before it."""
        sid: str | None = super().savepoint()
        if not self.run_on_commit:
            self._waited_at.clear()
        elif sid is not None:
            self._waited_at[sid] = len(self.run_on_commit)
        return sid

    def savepoint_rollback(self, sid: str) -> None:
        """
        Roll back to a savepoint; forget what was to be done for what is undone.

        Django itself forgets the callbacks of `atomic()` blocks only.
        """
        super().savepoint_rollback(sid)
        earlier = self._waited_at.get(sid, 0)
        self.run_on_commit = [
            entry
            for number, entry in enumerate(self.run_on_commit)
            if number < earlier or not isinstance(entry[1], BeforeCommit)
        ]

    def commit(self) -> None:
        """Do what waits for the commit, then commit; after an error roll back."""
        waiting = [
            function
            for _, function, *_ in self.run_on_commit
            if isinstance(function, BeforeCommit)
        ]
        if waiting:
            self.run_on_commit = [
                entry
                for entry in self.run_on_commit
                if not isinstance(entry[1], BeforeCommit)
            ]
            try:
                for write in dict.fromkeys(one.write for one in waiting):
                    write(self, [one.what for one in waiting if one.write is write])
            except BaseException:
                # Django expects errors of the database here, and no others.
                self.rollback()
                raise
        super().commit()
