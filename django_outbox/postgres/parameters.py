"""How ids are handed to statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..message.record import Record


def array_of(texts: Iterable[str]) -> str:
    """
    Write ids, or UUIDs, as an array that the statement casts to its type.

    The driver inspects each element of a list: for a page of records that took
    longer than the server's work.
    """
    return f"{{{','.join(texts)}}}"


def ids_of(records: Sequence[Record]) -> str:
    """Write the ids of the rows of these records."""
    return array_of([str(record.id) for record in records])


def message_ids_of(records: Sequence[Record]) -> dict[str, Any]:
    """Return the parameter that tells rows by their message ids."""
    return {"message_ids": array_of([record.message_id for record in records])}
