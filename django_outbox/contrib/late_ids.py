"""
Messages that are written right before the commit of their transaction.

A message's id is drawn when its row is written. In a long transaction that is long
before others can see it, and other transactions draw later ids and commit earlier. With
`stash_at_commit()` ids follow the commits closely, the locks of `ordered=True` are held
for the commit only, and all messages of a transaction take one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from django.db import transaction

from ..exceptions import ConfigurationError
from ..message.outgoing import Message, Row
from ..stashing.transaction import awaited, current_writer, lock_keys
from ..stashing.writing import write_rows
from .commit_hooks import BeforeCommit, CommitHooks

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

ENGINE: Final = "django_outbox.contrib.postgresql"


class _Late(NamedTuple):
    row: Row
    is_ordered: bool


def stash_at_commit(
    message: Message, *, using: str | None = None, ordered: bool = False
) -> None:
    """
    Write a message right before the open transaction commits.

    It is checked and serialized, and passes MIDDLEWARE, in this call; so its errors are
    raised here. The messages of one transaction are written in the order of the calls,
    and after those of `stash()`. A savepoint that rolls back takes its messages along.

    Args:
        message: What `stash_many()` takes, or a declared topic's `message()`.
        using: As in `stash()`.
        ordered: As in `stash()`; the lock is taken right before the commit, and for
            all messages of the transaction at once.

    Raises:
        ConfigurationError: The database's ENGINE has no hook before a commit.
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidMessage: The message breaks a limit.

    An error while the messages are written, such as `TableMissing`, is raised at the
    end of the atomic block, and the transaction rolls back.
    """
    writer = current_writer()
    connection = writer.connection(using, caller="stash_at_commit")
    if not isinstance(connection, CommitHooks):
        raise ConfigurationError(
            f"DATABASES[{connection.alias!r}]: the ENGINE "
            f"{connection.settings_dict['ENGINE']!r} runs nothing before a commit. Set "
            f"it to {ENGINE!r}, or derive your backend's DatabaseWrapper from "
            "django_outbox.contrib.commit_hooks.CommitHooks."
        )
    late = _Late(writer.rows.make(message), ordered)
    transaction.on_commit(BeforeCommit(connection, _write, late), connection.alias)


def _write(connection: BaseDatabaseWrapper, waiting: Sequence[_Late]) -> None:
    writer = current_writer()
    ordered = {(late.row.topic, late.row.key) for late in waiting if late.is_ordered}
    if ordered:
        lock_keys(connection, ordered)
    write_rows(writer, connection, [late.row for late in waiting])


astash_at_commit = awaited(stash_at_commit)
