"""What `stash()` decides before it reaches a database."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.utils.translation import gettext_lazy
from pytest_django import Settings

from django_outbox import (
    InvalidMessage,
    Message,
    NotInTransaction,
    OpenSeries,
    StashError,
    astash,
    stash,
    stash_delayed,
    stash_many,
)
from django_outbox.stashing.schedule import SeriesOptions
from django_outbox.stashing.transaction import current_writer
from django_outbox.stashing.writing import to_json


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
        stash("orders", key="1", value=None)
    with pytest.raises(NotInTransaction, match=expected):
        stash_many([Message("orders", key="1", value=None)])


def test_the_setting_database_comes_before_the_routers(
    settings: Settings,
) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "other"}
    with pytest.raises(NotInTransaction, match="on the database 'other'"):
        stash("orders", key="1", value=None)


def test_using_comes_before_the_setting_database(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "other"}
    with pytest.raises(NotInTransaction, match="on the database 'default'"):
        stash("orders", key="1", value=None, using="default")


def test_a_serializer_that_returns_no_text_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_OUTBOX = {"SERIALIZER": "json.loads"}
    monkeypatch.setattr("json.loads", lambda _: 17)
    problem = r"SERIALIZER \(json.loads\) must return str or bytes, not int"
    with pytest.raises(StashError, match=problem):
        _row(value={})


def test_a_serializer_may_return_bytes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_OUTBOX = {"SERIALIZER": "json.loads"}
    monkeypatch.setattr("json.loads", lambda _: b"\0\xff")
    assert current_writer().rows.make(Message("t", key="k", value={})).raw == b"\0\xff"


def test_a_serializer_gets_what_it_has_keyword_only_parameters_for(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serialize(
        value: object, *, headers: object, topic: str, indent: int = 2
    ) -> str:
        return f"{topic} {headers} {indent} {value}"

    def unasked(value: object, key: str = "own", **more: object) -> str:
        return f"{key} {more} {value}"

    message = Message("t", key="k", value=7, headers={"a": "b"})
    settings.DJANGO_OUTBOX = {"SERIALIZER": "json.loads"}
    monkeypatch.setattr("json.loads", serialize)
    assert current_writer().rows.make(message).text == "t {'a': 'b'} 2 7"
    settings.DJANGO_OUTBOX = {"SERIALIZER": "json.loads", "SOURCE": "reads it again"}
    monkeypatch.setattr("json.loads", unasked)
    assert current_writer().rows.make(message).text == "own {} 7"


def test_a_value_that_no_serializer_takes_is_refused_without_showing_it() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "top secret"

    with pytest.raises(StashError, match="cannot turn this Secret into text") as caught:
        _row(value=Secret())
    assert "top secret" not in str(caught.value)


def test_an_error_names_the_part_of_the_value_and_the_next_step() -> None:
    class Money:
        pass

    with pytest.raises(InvalidMessage) as caught:
        _row(value={"items": [{"price": 1}, {"price": Money()}]})
    assert (
        "value['items'][1]['price']: SERIALIZER (django_outbox.stashing.to_json) "
        "cannot turn this Money into text. Convert it first, or set SERIALIZER to "
        "a callable that accepts it."
    ) == str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidMessage, match="deeply nested list"):
        _row(value=value)


def test_a_value_that_was_forgotten_is_no_tombstone() -> None:
    """On a compacted topic a tombstone deletes what was sent before."""
    missing = "missing 1 required keyword-only argument: 'value'"
    series = OpenSeries(SeriesOptions("s"), None)
    with pytest.raises(TypeError, match=missing):
        stash("orders", key="1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=missing):
        series.stash("orders", key="1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=missing):
        stash_delayed(  # type: ignore[call-arg]
            "orders", key="1", not_before=dt.timedelta(1)
        )
    with pytest.raises(TypeError, match=missing):
        asyncio.run(astash("orders", key="1"))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=missing):
        Message("orders", key="1")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (
            [Message("t", key="1", value=1), {"topic": "t"}],
            r"messages\[1\]: must be a Message, not dict; pass django_outbox\.Mess",
        ),
        ({"topic": "t", "key": "1"}, r"messages\[0\]: must be a Message, not str"),
        ([None], r"messages\[0\]: must be a Message, not NoneType"),
        (Message("t", key="1", value=1), "an iterable of Message, not Message; pass a"),
        ("text", "an iterable of Message, not str; pass a list"),
        (b"text", "an iterable of Message, not bytes"),
        (None, "an iterable of Message, not NoneType"),
        (
            [Message("t", key=key, value=1) for key in ("1", "2", "k" * 256)],
            r"messages\[2\]: key: 256 characters",
        ),
        (
            [Message("t", key="1", value={"a": [object()]})],
            r"messages\[0\]: value\['a'\]\[0\]: SERIALIZER",
        ),
    ],
)
def test_what_is_no_message_is_refused_with_its_position(
    messages: Any, error: str
) -> None:
    with pytest.raises(InvalidMessage, match=error):
        list(current_writer().rows.make_all(messages))


def test_an_error_of_the_iterable_itself_stays_what_it_is() -> None:
    def messages() -> Iterator[Message]:
        yield Message("t", key="1", value=1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(current_writer().rows.make_all(messages()))


def test_the_settings_are_read_again_after_a_change(settings: Settings) -> None:
    _row(value="x" * 20)
    settings.DJANGO_OUTBOX = {"MAX_VALUE_BYTES": 10}
    with pytest.raises(StashError, match="MAX_VALUE_BYTES"):
        _row(value="x" * 20)


def _row(*, value: object) -> tuple[Any, ...]:
    return current_writer().rows.make(Message("t", key="k", value=value))


def test_messages_in_a_row_have_their_own_headers() -> None:
    def messages() -> Iterator[Message]:
        headers = {"a": "1", "b": "2"}
        yield Message("t", key="1", value=None, headers=headers)
        yield Message("t", key="1", value=None, headers=dict(headers))
        headers["b"] = "3"
        yield Message("t", key="1", value=None, headers=headers)
        yield Message("t", key="1", value=None, headers={"b": "3", "a": "1"})
        yield Message("t", key="1", value=None, headers=[("a", "1")])
        yield Message("t", key="1", value=None)

    rows = list(current_writer().rows.make_all(messages()))
    assert [
        [*zip(row.header_names, row.header_values, strict=True)] for row in rows
    ] == [
        [("a", "1"), ("b", "2")],
        [("a", "1"), ("b", "2")],
        [("a", "1"), ("b", "3")],
        [("b", "3"), ("a", "1")],
        [("a", "1")],
        [],
    ]


def test_headers_that_break_a_limit_are_refused_again_and_again() -> None:
    for _ in range(2):
        rows = current_writer().rows.make_all(
            [
                Message("t", key="1", value=None, headers={"a": "1"}),
                Message("t", key="1", value=None, headers={"a": 1}),  # type: ignore[arg-type]
            ]
        )
        with pytest.raises(InvalidMessage, match=r"^messages\[1\]: headers"):
            list(rows)
