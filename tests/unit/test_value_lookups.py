"""Lookups on the decoded values of messages."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from django_outbox.testing.value_lookups import matches, require_known

VALUE = {
    "status": "placed",
    "total": 42,
    "amount": "10.00",
    "on": "2026-01-31",
    "note": None,
    "lines": [{"sku": "TEA-1"}, {"sku": "CUP-2"}],
    "order": {"id": 3, "in": "here"},
}


@pytest.mark.parametrize(
    "lookup",
    [
        {"value": VALUE},
        {"value__status": "placed"},
        {"value__order__id": 3, "value__total": 42},
        {"value__order": {"id": 3, "in": "here"}},
        {"value__lines__1__sku": "CUP-2"},
        {"value__status__exact": "placed"},
        {"value__status__in": {"placed", "paid"}},
        {"value__status__in": {"placed": 1}.keys(), "value__order__id__in": range(4)},
        {"value__total__gt": 41, "value__total__lte": 42},
        {"value__total__gte": 42, "value__total__lt": 43},
        {"value__amount": Decimal(10), "value__amount__gt": Decimal("9.5")},
        {"value__on": date(2026, 1, 31)},
        {"value__status__contains": "lac", "value__status__startswith": "pl"},
        {"value__status__endswith": "ced", "value__status__regex": "^p.*d$"},
        {"value__lines__contains": {"sku": "TEA-1"}},
        {"value__note": None, "value__note__isnull": True},
        {"value__missing__isnull": True, "value__status__isnull": False},
        {"value__order__in": "here"},
    ],
)
def test_a_value_matches(lookup: dict[str, Any]) -> None:
    assert matches(VALUE, lookup)


def test_bytes_of_a_serializer_are_read_as_json() -> None:
    value = json.dumps(VALUE, default=str).encode()
    assert matches(value, {"value__status": "placed", "value__order__id": 3})
    assert matches(value, {"value": value})
    assert not matches(value, {"value__status": "paid"})
    assert not matches(b"\xff", {"value__status": "placed"})
    assert matches(b"null", {"value": b"null"})


@pytest.mark.parametrize(
    "lookup",
    [
        {"value": {}},
        {"value__status": "paid"},
        {"value__status": "placed", "value__total": 41},
        {"value__missing": None},
        {"value__missing__deeper": 1},
        {"value__lines__2__sku": "CUP-2"},
        {"value__status__gt": 1},
        {"value__total__contains": "4"},
        {"value__total__startswith": "4"},
        {"value__amount__gt": Decimal(10)},
        {"value__status": Decimal(1)},
        {"value__status__in": ["paid"]},
        {"value__status__isnull": True},
        {"value__status__regex": "^aced"},
    ],
)
def test_a_value_does_not_match(lookup: dict[str, Any]) -> None:
    assert not matches(VALUE, lookup)


@pytest.mark.parametrize(
    ("value", "lookup"),
    [
        ("text", {"value": "text", "value__startswith": "te"}),
        (b"\xff", {"value": b"\xff"}),
        (None, {"value": None, "value__isnull": True}),
        ([1, 2], {"value__0": 1, "value__contains": 2}),
    ],
)
def test_a_value_need_not_be_an_object(value: Any, lookup: dict[str, Any]) -> None:
    assert matches(value, lookup)


def test_an_argument_with_another_name_is_a_mistake() -> None:
    require_known({"value": 1, "value__status": 1})
    with pytest.raises(TypeError, match="'status' is not an argument"):
        require_known({"status": "placed"})


@pytest.mark.parametrize("wanted", [object(), [object()]])
def test_what_json_has_not_is_an_error_and_no_mismatch(wanted: object) -> None:
    """With `times=0` a mismatch would be what the test wants."""
    with pytest.raises(TypeError, match="type object"):
        matches(VALUE, {"value__status": wanted})
    with pytest.raises(TypeError):
        matches(VALUE, {"value__status__in": 5})
