"""What `stash()` decides before it reaches a database."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.utils.translation import gettext_lazy
from pytest_django import Settings

from django_outbox import Message, NotInTransaction, StashError, stash, stash_many
from django_outbox.stashing import to_json
from django_outbox.writing import current_writer


def test_json_is_compact_and_keeps_letters() -> None:
    assert to_json({"name": "Zoë", "lines": [1, 2]}) == '{"name":"Zoë","lines":[1,2]}'


def test_json_knows_what_django_knows() -> None:
    value = {
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "price": Decimal("1.10"),
        "id": uuid.UUID(int=1),
        "label": gettext_lazy("paid"),
    }
    assert json.loads(to_json(value)) == {
        "at": "2026-01-02T03:04:05Z",
        "price": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "label": "paid",
    }


def test_json_without_a_standard_form_is_refused() -> None:
    """NaN is no JSON: most consumers could not read it."""
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(float("nan"))


def test_outside_a_transaction_the_error_names_the_database() -> None:
    expected = r"atomic\(using='default'\)"
    with pytest.raises(NotInTransaction, match=expected):
        stash("orders", key="1")
    with pytest.raises(NotInTransaction, match=expected):
        stash_many([Message("orders", key="1")])


def test_the_setting_database_comes_before_the_routers(
    settings: Settings,
) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "other"}
    with pytest.raises(NotInTransaction, match="on the database 'other'"):
        stash("orders", key="1")


def test_using_comes_before_the_setting_database(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "other"}
    with pytest.raises(NotInTransaction, match="on the database 'default'"):
        stash("orders", key="1", using="default")


def test_a_serializer_that_returns_no_text_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_OUTBOX = {"SERIALIZER": "json.loads"}
    monkeypatch.setattr("json.loads", lambda _: b"bytes")
    with pytest.raises(StashError, match=r"SERIALIZER \(json.loads\) must return str"):
        _row(value={})


def test_a_value_that_no_serializer_takes_is_refused_without_showing_it() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "top secret"

    with pytest.raises(StashError, match="cannot turn this Secret into text") as caught:
        _row(value=Secret())
    assert "top secret" not in str(caught.value)


def test_the_settings_are_read_again_after_a_change(settings: Settings) -> None:
    _row(value="x" * 20)
    settings.DJANGO_OUTBOX = {"MAX_VALUE_BYTES": 10}
    with pytest.raises(StashError, match="MAX_VALUE_BYTES"):
        _row(value="x" * 20)


def _row(*, value: object) -> tuple[Any, ...]:
    return current_writer().rows.make(Message("t", key="k", value=value))
