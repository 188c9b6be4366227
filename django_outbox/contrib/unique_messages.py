"""
Messages that are stashed once, however often the code runs.

For a request that is repeated, a job that starts over, two processes that find the same
work. The key is claimed among the processed messages, in the message's transaction.
"""

from __future__ import annotations

import uuid
from typing import Final

from ..exceptions import InvalidMessage
from ..idempotence.once import Once
from ..message.limits import check_topic_name
from ..message.outgoing import Message
from ..stashing.transaction import awaited, current_writer
from ..stashing.writing import stash_message

CONSUMER: Final = "stash:"
"""Before the topic: under this consumer the keys of a topic are claimed."""


def stash_unique(
    message: Message, *, unique_key: str | uuid.UUID, using: str | None = None
) -> uuid.UUID:
    """
    Write a message, unless one with this unique key was written to its topic before.

        stash_unique(Message("orders", key="17", value=order), unique_key="17/placed")

    While another transaction has written it and is open, the call waits. If that one
    rolls back, this message is written. The message of a repeat is not compared with
    the first one, which is kept. Keys are remembered as long as processed messages:
    see the setting PROCESSED_RETENTION.

    Args:
        message: What `stash_many()` takes, or a declared topic's `message()`.
        unique_key: Text of up to 512 bytes, or a UUID; for one topic and database.
        using: As in `stash()`.

    Returns:
        The message id; for a repeat that of the first message.

    Raises:
        NotInTransaction: No `transaction.atomic` block is open there.
        InvalidKey: The unique key is empty, too long or not printable.
        InvalidMessage: The message breaks a limit.
        TableMissing: `manage.py migrate` has not run there.
    """
    alias = current_writer().connection(using, caller="stash_unique").alias
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"message: must be a Message, not {type(message).__name__}."
        )
    check_topic_name(message.topic)
    with Once(unique_key, consumer=CONSUMER + message.topic, using=alias) as run:
        if run.is_first:
            run.respond(str(stash_message(message, using=alias)))
    return uuid.UUID(run.response)


astash_unique = awaited(stash_unique)
