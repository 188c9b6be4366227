"""How large records are, for the bound of what is in memory."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.message.record import Record, size_of
from tests.unit.samples import record

ONE = record(1)


def with_(**fields: Any) -> Record:
    return ONE._replace(**fields)


@pytest.mark.parametrize(
    ("one", "size"),
    [
        (with_(value=None), 0),
        (with_(value="v" * 7), 7),
        (with_(value=b"v" * 7), 7),
        (with_(value=None, header_keys=["ab", ""], header_values=["c", "def"]), 6),
        (with_(value="v", header_keys=["a"], header_values=["b" * 1000]), 1002),
    ],
)
def test_values_and_headers_count(one: Record, size: int) -> None:
    assert size_of([one]) == size
    assert size_of([one, ONE, one]) == 2 * size + 1


@pytest.mark.parametrize(
    ("texts", "size"),
    [([None], 1005), ([["b" * 1000]], 2005), ([None, "b" * 1000], 2005)],
)
def test_headers_of_any_table_have_a_size(texts: list[Any], size: int) -> None:
    """goharvest's own table takes nulls, and arrays of arrays."""
    one = with_(header_keys=["a" * 1000], header_values=texts)

    assert size_of([one]) == size
