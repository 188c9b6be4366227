"""Which part of a value a serializer refuses."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from django_outbox.message.value_path import find_refused
from django_outbox.stashing.writing import to_json


class Money:
    def __repr__(self) -> str:
        return "top secret"


def _cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {"name": "a"}
    value["children"] = [{"parent": value}]
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "kind"),
    [
        (Money(), "value", "Money"),
        ({1, 2}, "value", "set"),
        (
            {"id": 1, "items": [{}, {}, {"price": Money()}]},
            "value['items'][2]['price']",
            "Money",
        ),
        (({"a": Decimal(1)}, [Money()]), "value[1][0]", "Money"),
        ({"lines": {(1, 2): "x"}}, "a key of value['lines']", "tuple"),
        ({7: {None: Money()}}, "value[7][None]", "Money"),
        ({"rate": float("nan")}, "value['rate']", "float that is NaN or infinite"),
        (_cyclic(), "value['children'][0]['parent']", "cyclic dict"),
        (_deep(), "value" + "[0]" * 19, "deeply nested list"),
        ({"k" * 200: Money()}, f"value['{'k' * 59}…]", "Money"),
    ],
)
def test_the_innermost_part_is_found(value: object, path: str, kind: str) -> None:
    assert (path, kind) == find_refused(value, to_json)


def test_what_a_serializer_takes_is_not_searched() -> None:
    """It may know types of its own, at any depth."""

    def knows_money(value: object) -> str:
        if isinstance(value, Money | str) or (
            isinstance(value, dict) and isinstance(value.get("price", ""), str | Money)
        ):
            return "text"
        raise TypeError

    value = {"price": 1.5, "tax": Money()}
    assert ("value['price']", "float") == find_refused(value, knows_money)
