"""A declared topic: what may be written, what is read, and the how-to, as it is."""

from __future__ import annotations

import math
import re
import sys
import traceback
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
)
from typing_extensions import TypedDict

from django_outbox import stash_many
from django_outbox.consuming import handlers
from django_outbox.contrib.contracts import Topic
from django_outbox.contrib.value_codecs import TypedValues
from django_outbox.exceptions import (
    ConfigurationError,
    ConsumingError,
    InvalidMessage,
    NotInTransaction,
)
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.limits import header_pairs
from django_outbox.models import OutboxRecord
from django_outbox.testing import run_consumer

PAGE = (Path(__file__).parents[2] / "docs/howto/topics.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@dataclass
class Placed:
    number: int
    total: Decimal
    note: str | None = None


class PlacedModel(BaseModel):
    number: int
    total: Decimal


class PlacedDict(TypedDict):
    number: int
    total: Decimal


ORDERS = Topic("orders", key=int, value=Placed)
ID = (("outbox-message-id", b"m-1"),)
GOOD = Placed(number=17, total=Decimal("9.50"))


def arrived(topic: str, value: str | None) -> ConsumedMessage:
    return ConsumedMessage(topic=topic, value=None if value is None else value.encode())


# Writing.


@pytest.mark.django_db
def test_what_is_stashed_is_the_key_as_text_and_the_value_as_json() -> None:
    with transaction.atomic():
        message_id = ORDERS.stash(GOOD, key=17, headers={"a": "b"}, partition=3)
        stash_many([ORDERS.message(None, key=17)])
    first, tombstone = OutboxRecord.objects.order_by("id")
    assert first.message_id == message_id
    assert (first.kafka_topic, first.kafka_key) == ("orders", "17")
    assert first.kafka_value == '{"number":17,"total":"9.50","note":null}'
    assert (first.kafka_header_keys, first.kafka_partition) == (["a"], 3)
    assert (tombstone.kafka_key, tombstone.kafka_value) == ("17", None)


@pytest.mark.django_db(transaction=True)
def test_it_needs_a_transaction_like_any_stash() -> None:
    with pytest.raises(NotInTransaction):
        ORDERS.stash(GOOD, key=17)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PlacedModel, PlacedModel(number=17, total=Decimal(9))),
        (PlacedDict, {"number": 17, "total": Decimal(9)}),
        (list[int], [1, 2]),
        (str, "text"),
    ],
)
def test_any_type_that_pydantic_describes_is_read_as_it_was_written(
    kind: Any, value: Any
) -> None:
    topic = Topic("t", key=str, value=kind)
    made = topic.message(value, key="k")
    assert isinstance(made.value, str)
    assert topic.read(arrived("t", made.value)) == value


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        (SecretStr, SecretStr("x")),
        (dict[str, list[SecretBytes]], {"a": [SecretBytes(b"x")]}),
        (Secret[str], Secret("x")),
    ],
)
def test_what_would_be_written_as_asterisks_is_refused(kind: Any, secret: Any) -> None:
    topic = Topic("t", key=str, value=kind)
    with pytest.raises(InvalidMessage, match=r"a Secret\w*, which .* asterisks"):
        topic.message(secret, key="k")


def test_a_secret_that_is_revealed_is_written() -> None:
    class Login(BaseModel):
        token: SecretStr

        @field_serializer("token", when_used="json")
        def reveal(self, token: SecretStr) -> str:
            return token.get_secret_value()

    topic = Topic("t", key=str, value=Login)
    made = topic.message(Login(token=SecretStr("x")), key="k")
    assert made.value == '{"token":"x"}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [dict, Any, dict[str, float | None]])
def test_what_json_has_no_number_for_is_refused(kind: Any, number: float) -> None:
    """Not written as a null, which the type allows."""
    topic = Topic("t", key=str, value=kind)
    with pytest.raises(InvalidMessage, match="neither NaN nor infinity"):
        topic.message({"celsius": number}, key="k")
    assert topic.message({"celsius": None}, key="k").value == '{"celsius":null}'


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            Placed(number="x", total=Decimal(1)),  # type: ignore[arg-type]
            "value: a Placed is not of orders: of another type: number.",
        ),
        ({"number": 17}, "value: a dict is not of orders."),
        ("secret", "value: a str is not of orders."),
    ],
)
def test_a_value_of_another_type_is_refused_without_its_payload(
    value: Any, why: str
) -> None:
    with pytest.raises(InvalidMessage) as refused:
        ORDERS.message(value, key=17)
    assert str(refused.value) == why


def test_fields_that_pydantic_cannot_describe_are_not_named() -> None:
    class Plain:
        """Not a type of JSON."""

    class Odd(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        number: int
        plain: Plain | None = None

    made = Odd.model_construct(number="secret")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage) as refused:
        TypedValues(Odd, topic="t").to_json(made)
    assert "secret" not in "".join(traceback.format_exception(refused.value))


def test_an_aliased_field_is_named_as_in_python() -> None:
    class Aliased(BaseModel):
        number: int = Field(alias="n")

    made = Aliased.model_construct(number="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="of another type: number"):
        TypedValues(Aliased, topic="t").to_json(made)


def test_a_value_that_no_reader_accepts_is_refused() -> None:
    class Small(BaseModel):
        size: int

    made = Small.model_construct(size=5)
    made.__dict__["size"] = None
    with pytest.raises(InvalidMessage, match=r"^value: "):
        Topic("t", key=str, value=Small).message(made, key="k")


@pytest.mark.parametrize("key", ["17", 1.5, None])
def test_a_key_of_another_type_is_refused(key: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^key: not of orders: it: Input should"):
        ORDERS.message(GOOD, key=key)


def test_keys_may_be_ids_of_any_kind() -> None:
    number = uuid4()
    assert Topic("t", key=UUID, value=str).message("", key=number).key == str(number)


class Kind(Enum):
    CAR = "car"


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [(Kind, Kind.CAR, "car"), (date, date(2026, 1, 2), "2026-01-02"), (int, 7, "7")],
)
def test_a_key_is_what_json_makes_of_it(kind: Any, key: Any, text: str) -> None:
    assert Topic("t", key=kind, value=str).message("", key=key).key == text


def test_a_key_that_is_no_text_in_json_is_refused() -> None:
    topic = Topic("t", key=tuple[int, int], value=str)
    with pytest.raises(InvalidMessage, match=r"^key: a key of t is a list in JSON"):
        topic.message("", key=(1, 2))


def test_a_key_that_json_or_pydantic_would_change_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"^key: a key of t is a bool in JSON"):
        Topic("t", key=bool, value=str).message("", key=True)
    topic = Topic("t", key=SecretStr, value=str)
    with pytest.raises(InvalidMessage, match=r"a SecretStr, .* asterisks") as caught:
        topic.message("", key=SecretStr("hunter2"))
    assert "hunter2" not in str(caught.value)


def test_names_of_fields_in_json_are_the_aliases() -> None:
    class Aliased(BaseModel):
        number: int = Field(alias="orderNumber")

    topic = Topic("t", key=str, value=Aliased)
    made = topic.message(Aliased(orderNumber=3), key="k")
    assert made.value == '{"orderNumber":3}'


def test_variables_are_part_of_the_name() -> None:
    topic = Topic("{tenant}.{kind}.orders", key=str, value=str)
    assert topic.message("", key="", tenant="acme", kind="b2b").topic == (
        "acme.b2b.orders"
    )
    wrong: list[dict[str, Any]] = [{}, {"tenant": "a"}, {"tenant": "a", "more": "c"}]
    for given in wrong:
        with pytest.raises(InvalidMessage, match=r"needs kind, tenant\.$"):
            topic.message("", key="", **given)
    with pytest.raises(InvalidMessage, match=r"needs no variables\.$"):
        ORDERS.message(GOOD, key=17, tenant="acme")


def test_cloud_events_have_their_headers() -> None:
    topic = Topic(
        "t", key=str, value=str, event_type="order.placed", event_source="/shop"
    )
    first, second = (
        dict(header_pairs(topic.message("", key="", headers={"a": "b"}).headers or {}))
        for _ in range(2)
    )
    assert list(first) == [
        *("a", "ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"),
        "content-type",
    ]
    assert (first["ce_type"], first["ce_source"]) == ("order.placed", "/shop")
    assert first["ce_id"] != second["ce_id"]


# Reading.


@pytest.mark.parametrize(
    "value", ["", "{", '{"number":17}', '{"number":"secret","total":"1"}', "[]"]
)
def test_what_others_wrote_is_read_only_if_it_fits(value: str) -> None:
    with pytest.raises(ConsumingError, match=r"^value: not of orders: ") as refused:
        ORDERS.read(arrived("orders", value))
    assert "secret" not in str(refused.value)


class Card(BaseModel, extra="forbid"):
    kind: Literal["card"]
    limits: dict[str, PositiveInt] = {}
    phones: dict[int, PositiveInt] = {}


class Cash(BaseModel):
    kind: Literal["cash"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ('{"kind":"card","limits":{"secret":-1}}', "limits.…: Input should be greater"),
        ('{"kind":"card","secret":1}', "…: Extra inputs are not permitted"),
        ('{"kind":"card","phones":{"491":-1}}', "phones.…: Input should be greater"),
        ('{"kind":"secret"}', "it: No type of the union has this tag"),
    ],
)
def test_what_does_not_fit_is_told_without_a_part_of_it(value: str, told: str) -> None:
    kind: Any = Annotated[Card | Cash, Field(discriminator="kind")]
    payments: Topic[int, Any] = Topic("payments", key=int, value=kind)
    with pytest.raises(ConsumingError, match=re.escape(told)) as refused:
        payments.read(arrived("payments", value))
    assert "secret" not in str(refused.value)
    assert "491" not in str(refused.value)


def test_a_tombstone_has_no_value() -> None:
    assert ORDERS.read(arrived("orders", None)) is None


def test_fields_of_a_later_release_are_ignored() -> None:
    later = '{"number":17,"total":"9.50","currency":"EUR"}'
    assert ORDERS.read(arrived("orders", later)) == GOOD


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[handlers.Subscription]:
    """Handlers that the test declares, and nobody else's."""
    found: list[handlers.Subscription] = []
    monkeypatch.setattr(handlers, "_subscriptions", found)
    return found


def test_a_handler_gets_the_value_and_the_message(
    declared: list[handlers.Subscription],
) -> None:
    got: list[object] = []

    @ORDERS.consumer(group="billing", batch=10)
    def charge(order: Placed | None, message: ConsumedMessage) -> None:
        """Charge it."""
        got.append((order, message.topic))

    (subscription,) = declared
    assert subscription.topics == ("orders",)
    assert (subscription.group, subscription.batch) == ("billing", 10)
    assert subscription.name.endswith("charge")
    made = ORDERS.message(GOOD, key=17)
    assert isinstance(made.value, str)
    subscription.handle(arrived("orders", made.value))
    assert got == [(GOOD, "orders")]
    with pytest.raises(ConsumingError):
        subscription.handle(arrived("orders", "{}"))


@pytest.mark.django_db
def test_an_async_handler_is_awaited_and_the_test_kit_runs_it(
    declared: list[handlers.Subscription],
) -> None:
    got: list[object] = []

    @ORDERS.consumer(group="billing")
    async def charge(order: Placed | None, message: ConsumedMessage) -> None:
        got.append((order, message.topic))

    message = ORDERS.message(GOOD, key=17)
    assert isinstance(message.value, str)
    arrival = replace(arrived("orders", message.value), headers=ID)

    assert run_consumer(charge, arrival).ran
    assert run_consumer(charge, arrival).is_repeat
    assert got == [(GOOD, "orders")]


# Declarations.


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "no topic"}, "'no topic' is not a valid topic name."),
        ({"name": "{}.orders"}, "'' cannot be the name of a variable."),
        ({"name": "{key}.orders"}, "'key' cannot be the name of a variable."),
        ({"name": "{tenant"}, "is not a valid topic name"),
        ({"name": "t", "event_type": "a"}, "belong together"),
        ({"name": "t", "value": object()}, "pydantic cannot describe the value"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Topic(**{"key": str, "value": str, **arguments})
    assert why in str(refused.value)


def test_a_handler_needs_one_topic() -> None:
    with pytest.raises(ConfigurationError, match="a handler is for one topic"):
        Topic("{tenant}.orders", key=str, value=str).consumer(group="g")


def test_the_schema_is_for_readers_in_other_languages() -> None:
    assert ORDERS.json_schema()["required"] == ["number", "total"]


# The page.


@pytest.mark.django_db
def test_the_page_does_what_it_says(
    declared: list[handlers.Subscription], monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[dict[str, Any]] = []

    class Invoice:
        class objects:  # noqa: N801
            create = staticmethod(lambda **fields: created.append(fields))

    module = ModuleType("shop_topics")
    # A dataclass looks its module up.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    names["Invoice"] = Invoice
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"block {number} of topics.md", "exec"), names)  # noqa: S102
    row = OutboxRecord.objects.get()
    (subscription,) = declared
    subscription.handle(arrived(row.kafka_topic, row.kafka_value))
    assert created == [{"order": 17, "amount": Decimal("9.50")}]
