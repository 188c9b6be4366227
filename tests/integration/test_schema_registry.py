"""Declared topics and a real schema registry: written, relayed, read, checked."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID, uuid4
from weakref import WeakSet

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.db import transaction
from google.protobuf import descriptor_pb2, text_format, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pydantic import BaseModel, ConfigDict
from pytest_django import Settings

from django_outbox.consuming import handlers
from django_outbox.consuming.outages import is_service_unavailable
from django_outbox.contrib import contracts
from django_outbox.contrib import schema_registry as module
from django_outbox.contrib.contracts import Topic
from django_outbox.contrib.registered_schemas import (
    RegisteredAvro,
    RegisteredJson,
    RegisteredProtobuf,
    SchemaRegistry,
    register_schema,
    register_schemas,
)
from django_outbox.contrib.schema_checks import check_schemas
from django_outbox.contrib.value_codecs import Encoding
from django_outbox.devstack import DevstackError
from django_outbox.devstack.service import free_port
from django_outbox.exceptions import (
    ConfigurationError,
    ConsumingError,
    InvalidMessage,
    OutboxError,
    RegistryUnavailable,
)
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.limits import header_pairs
from django_outbox.models import OutboxRecord
from django_outbox.pipeline.payloads.declared import Encoded
from django_outbox.pipeline.payloads.decoder import make_decoder
from django_outbox.pipeline.payloads.framing import schema_id
from django_outbox.pipeline.payloads.registry import Registry
from django_outbox.testing import OutboxFixture, run_consumer
from tests.acceptance.proxies import SilentProxy
from tests.machine import do_without
from tests.pipeline.payloads import FILE, MESSAGE, proto_set, registry_server
from tests.schemaregistry import API, schema_registry

PAGE = (Path(__file__).parents[2] / "docs/howto/schema-registry.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

PATIENT: dict[str, Any] = {"timeout": 60.0}
"""On a slow machine the registry's first answer takes long."""


@dataclass
class Placed:
    number: int
    total: Decimal
    id: UUID
    day: date
    at: datetime
    note: str | None = None


PLACED: dict[str, Any] = {
    "type": "record",
    "name": "Placed",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "int"},
        {
            "name": "total",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
GOOD = Placed(
    number=17,
    total=Decimal("9.50"),
    id=UUID(int=1),
    day=date(2026, 1, 2),
    at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
)


def with_field(field: dict[str, Any]) -> dict[str, Any]:
    return {**PLACED, "fields": [*PLACED["fields"], field]}


def message_class(*files: str, name: str = MESSAGE) -> Any:
    """The class that protoc would make, of files that a text describes."""
    pool = DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for text in files or (FILE,):
        file = text_format.Parse(text, descriptor_pb2.FileDescriptorProto())
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


Shipment = message_class()


@pytest.fixture(autouse=True)
def own_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that other tests have declared are not asked for."""
    monkeypatch.setattr(contracts, "_declared", WeakSet())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a registry for all of these tests."""
    try:
        running = schema_registry()
        found = running.__enter__()
    except DevstackError as error:
        do_without(str(error))
    yield found
    running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def url(port: int) -> str:
    return f"http://127.0.0.1:{port}{API}"


@pytest.fixture
def registry(url: str) -> Iterator[SchemaRegistry]:
    with closing(SchemaRegistry({"url": url, **PATIENT})) as registry:
        yield registry


@pytest.fixture
def name() -> str:
    """Of a topic that no other test has."""
    return f"orders-{uuid4().hex}"


@pytest.fixture
def away() -> SchemaRegistry:
    """A registry that has ended."""
    return SchemaRegistry({"url": f"http://127.0.0.1:{free_port()}"})


def topics(name: str, registry: SchemaRegistry) -> dict[str, Topic[str, Any]]:
    """One of each format."""
    return {
        "json": Topic(name, key=str, value=Placed, encoding=RegisteredJson(registry)),
        "avro": Topic(
            name, key=str, value=Placed, encoding=RegisteredAvro(registry, PLACED)
        ),
        "protobuf": Topic(
            name, key=str, value=Shipment, encoding=RegisteredProtobuf(registry)
        ),
    }


VALUES = {"json": GOOD, "avro": GOOD, "protobuf": Shipment(id="s-1", total=3)}
FORMATS = list(VALUES)


def encoded(topic: Topic[str, Any], value: Any) -> bytes:
    made = topic.message(value, key="k")
    assert isinstance(made.value, bytes)
    return made.value


def arrived(name: str, value: bytes | None) -> ConsumedMessage:
    return ConsumedMessage(topic=name, value=value)


def messages(topic: Topic[Any, Any]) -> list[CheckMessage]:
    """What the check says of one topic: others may be declared elsewhere."""
    return [message for message in check_schemas() if message.obj is topic]


# Written and read.


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[handlers.Subscription]:
    """Handlers that the test declares, and nobody else's."""
    found: list[handlers.Subscription] = []
    monkeypatch.setattr(handlers, "_subscriptions", found)
    return found


@pytest.mark.django_db
@pytest.mark.parametrize("form", FORMATS)
def test_a_value_comes_back_through_the_relay_and_a_consumer(
    form: str,
    name: str,
    registry: SchemaRegistry,
    outbox: OutboxFixture,
    declared: list[handlers.Subscription],
) -> None:
    topic = topics(name, registry)[form]
    number = register_schema(topic)
    got: list[object] = []

    @topic.consumer(group="billing")
    def charge(value: object, message: ConsumedMessage) -> None:
        got.append(value)

    with transaction.atomic():
        topic.stash(VALUES[form], key="k")
        topic.stash(None, key="k")
    sent, tombstone = outbox.drain()

    assert sent.value is not None
    assert schema_id(sent.value) == number
    assert run_consumer(charge, sent).ran
    assert run_consumer(charge, tombstone).ran
    assert got == [VALUES[form], None]


def test_the_pipeline_reads_avro(name: str, registry: SchemaRegistry) -> None:
    topic = topics(name, registry)["avro"]
    register_schema(topic)
    value = encoded(topic, GOOD)
    found = Registry(url=registry.url).schema(schema_id(value))
    assert found is not None
    known = Encoded(format="avro", schema=json.dumps(PLACED).encode(), is_framed=True)
    row = make_decoder(known, ((schema_id(value), found),)).decode(value)
    assert (row["number"], row["total"]) == (17, Decimal("9.50"))
    assert (row["day"], row["at"], row["note"]) == (GOOD.day, GOOD.at, None)


def test_the_pipeline_reads_protobuf(name: str, registry: SchemaRegistry) -> None:
    topic = topics(name, registry)["protobuf"]
    register_schema(topic)
    value = encoded(topic, VALUES["protobuf"])
    found = Registry(url=registry.url).schema(schema_id(value))
    assert found is not None
    known = Encoded(
        format="protobuf", schema=proto_set(), message=MESSAGE, is_framed=True
    )
    row = make_decoder(known, ((schema_id(value), found),)).decode(value)
    assert (row["id"], row["total"]) == ("s-1", 3)


def test_a_reader_gets_the_fields_of_its_own_schema(
    name: str, registry: SchemaRegistry
) -> None:
    @dataclass
    class Reader:
        number: int
        currency: str

    class Writer(BaseModel):
        number: int
        more: str

    def schema(*fields: dict[str, Any]) -> dict[str, Any]:
        number = {"name": "number", "type": "int"}
        return {"type": "record", "name": "R", "fields": [number, *fields]}

    writing = Topic(
        name,
        key=str,
        value=Writer,
        encoding=RegisteredAvro(registry, schema({"name": "more", "type": "string"})),
    )
    currency = {"name": "currency", "type": "string", "default": "EUR"}
    reading = Topic(
        name,
        key=str,
        value=Reader,
        encoding=RegisteredAvro(registry, schema(currency)),
    )
    register_schema(writing)
    value = encoded(writing, Writer(number=1, more="x"))
    assert reading.read(arrived(name, value)) == Reader(number=1, currency="EUR")


def test_a_file_that_another_imports_is_registered_first(
    name: str, registry: SchemaRegistry
) -> None:
    other = f"{name}/money.proto"
    money = f"""
    name: "{other}" package: "shop" syntax: "proto3"
    message_type {{
      name: "Money"
      field {{ name: "cents" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }}
    }}
    """
    bill = f"""
    name: "bill.proto" package: "shop" syntax: "proto3" dependency: "{other}"
    message_type {{
      name: "Bill"
      field {{
        name: "sum" number: 1 type: TYPE_MESSAGE type_name: ".shop.Money"
        label: LABEL_OPTIONAL
      }}
    }}
    """
    bill_class = message_class(money, bill, name="shop.Bill")
    topic = Topic(
        name, key=str, value=bill_class, encoding=RegisteredProtobuf(registry)
    )
    assert [message.id for message in messages(topic)] == ["django_outbox.W018"]
    register_schema(topic)
    assert messages(topic) == []
    value = bill_class(sum={"cents": 950})
    assert topic.read(arrived(name, encoded(topic, value))) == value


def test_schemas_come_as_text_as_a_file_or_as_a_dict(
    tmp_path: Path, name: str, registry: SchemaRegistry
) -> None:
    text = json.dumps(PLACED)
    file = tmp_path / "placed.avsc"
    file.write_text(json.dumps(PLACED, indent=2), "utf-8")
    ids = {
        register_schema(
            Topic(name, key=str, value=Placed, encoding=RegisteredAvro(registry, given))
        )
        for given in (text, file, PLACED)
    }
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("form", "content_type"),
    [
        ("json", "application/json"),
        ("avro", "application/avro"),
        ("protobuf", "application/protobuf"),
    ],
)
def test_a_cloud_event_names_the_format(
    form: str, content_type: str, name: str, registry: SchemaRegistry
) -> None:
    encodings: dict[str, Encoding] = {
        "json": RegisteredJson(registry),
        "avro": RegisteredAvro(registry, PLACED),
        "protobuf": RegisteredProtobuf(registry),
    }
    topic: Topic[str, Any] = Topic(
        name,
        key=str,
        value=Shipment if form == "protobuf" else Placed,
        encoding=encodings[form],
        event_type="order.placed",
        event_source="/shop",
    )
    made = topic.message(None, key="k")
    assert dict(header_pairs(made.headers or {}))["content-type"] == content_type


# Values that do not fit.


@pytest.mark.parametrize(
    ("form", "value", "why"),
    [
        ("json", {"number": "secret"}, "value: a dict is not of "),
        ("json", replace(GOOD, number="secret"), "value: a Placed is not of "),  # type: ignore[arg-type]
        ("avro", "secret", "value: a str is not of "),
        (
            "avro",
            replace(GOOD, number=2**40),
            "value: not of orders-",
        ),
        (
            "avro",
            replace(GOOD, total=Decimal("1.23456")),
            "value: a Placed does not fit the Avro schema of ",
        ),
        ("protobuf", "secret", "value: a str is not of "),
        ("protobuf", timestamp_pb2.Timestamp(), "value: a Timestamp is not of "),
    ],
)
def test_a_bad_value_is_an_error_in_the_request_without_a_part_of_it(
    form: str, value: Any, why: str, name: str, registry: SchemaRegistry
) -> None:
    topic = topics(name, registry)[form]
    register_schema(topic)
    with pytest.raises(InvalidMessage) as refused:
        topic.message(value, key="k")
    assert str(refused.value).startswith(why)
    _shows_nothing(refused.value)


def test_a_moment_has_a_time_zone(name: str, registry: SchemaRegistry) -> None:
    """Else it would be written as one of the zone of this machine."""
    topic = topics(name, registry)["avro"]
    register_schema(topic)
    naive = replace(GOOD, at=datetime(2026, 1, 2, 3, 4, 5))  # noqa: DTZ001
    with pytest.raises(InvalidMessage, match="a datetime has no time zone"):
        topic.message(naive, key="k")


def test_a_field_that_the_schema_does_not_have_is_refused(
    name: str, registry: SchemaRegistry
) -> None:
    @dataclass
    class More(Placed):
        secret: str = "secret"

    topic = Topic(name, key=str, value=More, encoding=RegisteredAvro(registry, PLACED))
    register_schema(topic)
    with pytest.raises(InvalidMessage, match="does not fit the Avro schema") as refused:
        topic.message(More(**vars(GOOD)), key="k")
    _shows_nothing(refused.value)


def test_required_fields_of_a_message_must_be_set(
    name: str, registry: SchemaRegistry
) -> None:
    old = """
    name: "old.proto" package: "old" syntax: "proto2"
    message_type {
      name: "Old"
      field { name: "id" number: 1 type: TYPE_STRING label: LABEL_REQUIRED }
    }
    """
    old_class = message_class(old, name="old.Old")
    topic = Topic(name, key=str, value=old_class, encoding=RegisteredProtobuf(registry))
    with pytest.raises(InvalidMessage, match="lacks required fields"):
        topic.message(old_class(), key="k")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"secret",
        lambda value: b"\1" + value[1:],
        lambda value: value[:1] + b"\xff\xff\xff\xff" + value[5:],
        lambda value: value[:8],
        lambda value: value[:6] + b"\xff\xff\xff",
    ],
    ids=["empty", "no frame", "wrong magic", "id too large", "cut", "garbage"],
)
def test_what_others_wrote_is_read_only_if_it_fits(
    form: str, damage: Any, name: str, registry: SchemaRegistry
) -> None:
    topic = topics(name, registry)[form]
    register_schema(topic)
    value = damage(encoded(topic, VALUES[form]))
    with pytest.raises(ConsumingError, match=r"^value: ") as refused:
        topic.read(arrived(name, value))
    _shows_nothing(refused.value)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_schema_that_the_registry_does_not_have_is_named(
    form: str, name: str, registry: SchemaRegistry
) -> None:
    topic = topics(name, registry)[form]
    register_schema(topic)
    value = encoded(topic, VALUES[form])
    unknown = value[:1] + (2**31 - 1).to_bytes(4, "big") + value[5:]
    with pytest.raises(ConsumingError, match="does not have the schema"):
        topic.read(arrived(name, unknown))


def test_another_message_of_the_file_is_refused(
    name: str, registry: SchemaRegistry
) -> None:
    stop = message_class(name="shop.Shipment.Stop")
    writing = Topic(name, key=str, value=stop, encoding=RegisteredProtobuf(registry))
    register_schema(writing)
    value = encoded(writing, stop(place="secret"))
    with pytest.raises(ConsumingError) as refused:
        topics(name, registry)["protobuf"].read(arrived(name, value))
    assert str(refused.value) == (
        f"value: a shop.Shipment.Stop is not of {name}, whose values are shop.Shipment."
    )


def _shows_nothing(error: OutboxError) -> None:
    assert "secret" not in str(error)
    assert error.__suppress_context__ or error.__context__ is None
    assert error.__cause__ is None


# Registering, and the check.


def only(found: list[CheckMessage]) -> CheckMessage:
    (message,) = found
    assert message.hint
    return message


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_registers_nothing(
    form: str, name: str, registry: SchemaRegistry
) -> None:
    topic = topics(name, registry)[form]
    with pytest.raises(ConfigurationError) as refused:
        topic.message(VALUES[form], key="k")
    assert str(refused.value) == (
        f"{name}: its schema is not registered as {name}-value in {registry.url}. "
        "Call register_schemas() at deployment, before the processes that write."
    )
    warning = only(messages(topic))
    assert warning.id == "django_outbox.W018"
    assert f"not registered as {name}-value" in warning.msg

    register_schema(topic)
    assert messages(topic) == []
    assert encoded(topic, VALUES[form])


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_registers_what_is_missing_where_that_was_asked_for(
    form: str, name: str, url: str
) -> None:
    eager = SchemaRegistry({"url": url, **PATIENT}, auto_register=True)
    with closing(eager):
        topic = topics(name, eager)[form]
        assert encoded(topic, VALUES[form])
        assert messages(topic) == []


def test_an_incompatible_change_is_found_before_it_is_registered(
    name: str, registry: SchemaRegistry
) -> None:
    registry.client.set_compatibility(f"{name}-value", "BACKWARD")
    register_schema(topics(name, registry)["avro"])

    @dataclass
    class Changed(Placed):
        currency: str = "EUR"

    def changed(**field: Any) -> Topic[str, Changed]:
        schema = with_field({"name": "currency", "type": "string", **field})
        encoding = RegisteredAvro(registry, schema)
        return Topic(name, key=str, value=Changed, encoding=encoding)

    wrong, right = changed(), changed(default="EUR")
    error = only(messages(wrong))
    assert error.id == "django_outbox.E017"
    assert f"latest version of {name}-value" in error.msg
    with pytest.raises(ConfigurationError, match="refused the schema"):
        register_schema(wrong)
    assert only(messages(right)).id == "django_outbox.W018"
    register_schema(right)
    assert messages(right) == []
    # A rollback starts processes of the former version.
    assert messages(topics(name, registry)["avro"]) == []


def test_json_schema_is_evolved_as_the_page_says(
    name: str, registry: SchemaRegistry
) -> None:
    def topic(*, extra: Any, with_note: bool) -> Topic[str, Any]:
        class Paid(BaseModel):
            model_config = ConfigDict(extra=extra)
            number: int

        class PaidWithNote(Paid):
            model_config = ConfigDict(title="Paid")
            note: str = ""

        kind = PaidWithNote if with_note else Paid
        encoding = RegisteredJson(registry)
        return Topic(f"{name}-{extra}", key=str, value=kind, encoding=encoding)

    for extra, found in (
        ("ignore", "django_outbox.E017"),
        ("forbid", "django_outbox.W018"),
    ):
        former = topic(extra=extra, with_note=False)
        registry.client.set_compatibility(f"{former.name}-value", "BACKWARD")
        register_schema(former)
        assert only(messages(topic(extra=extra, with_note=True))).id == found


def test_only_a_check_for_deployment_asks(name: str, registry: SchemaRegistry) -> None:
    topic = topics(name, registry)["avro"]
    asked = {
        deploys: [
            message.id
            for message in run_checks(
                tags=["django_outbox"], include_deployment_checks=deploys
            )
            if message.obj is topic
        ]
        for deploys in (False, True)
    }
    assert asked == {False: [], True: ["django_outbox.W018"]}


def test_the_command_fails_for_an_incompatible_schema(
    name: str, registry: SchemaRegistry
) -> None:
    registry.client.set_compatibility(f"{name}-value", "BACKWARD")
    register_schema(topics(name, registry)["avro"])
    schema = with_field({"name": "currency", "type": "string"})
    changed = Topic(  # noqa: F841  # the check finds it
        name, key=str, value=Placed, encoding=RegisteredAvro(registry, schema)
    )
    with pytest.raises(CommandError, match=r"E017.*not compatible"):
        call_command("check", deploy=True, tags=["django_outbox"])


def test_topics_with_variables_are_registered_by_name(
    name: str, registry: SchemaRegistry
) -> None:
    topic: Topic[str, Any] = Topic(
        f"{{tenant}}.{name}", key=str, value=Placed, encoding=RegisteredJson(registry)
    )
    plain = topics(name, registry)["json"]
    assert messages(topic) == []
    ids = register_schemas()
    assert ids[name] == register_schema(plain)
    assert topic.name not in ids
    with pytest.raises(ConfigurationError, match=f"as acme.{name}-value"):
        topic.message(GOOD, key="k", tenant="acme")
    assert register_schema(topic, tenant="acme")
    assert topic.message(GOOD, key="k", tenant="acme").topic == f"acme.{name}"


# A registry that is away.


@pytest.mark.parametrize("form", FORMATS)
def test_what_was_looked_up_once_needs_no_registry(
    form: str, name: str, registry: SchemaRegistry, port: int
) -> None:
    register_schema(topics(name, registry)[form])
    with SilentProxy("127.0.0.1", port) as way:
        behind = SchemaRegistry({"url": f"http://127.0.0.1:{way.port}{API}", **PATIENT})
        topic = topics(name, behind)[form]
        first = encoded(topic, VALUES[form])
        assert topic.read(arrived(name, first)) == VALUES[form]
        behind.close()
    with pytest.raises(RegistryUnavailable):
        topics(f"{name}-lost", behind)[form].message(VALUES[form], key="k")

    assert encoded(topic, VALUES[form]) == first
    assert topic.read(arrived(name, first)) == VALUES[form]


def test_calls_that_follow_an_outage_do_not_wait(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process would wait for one time-out after the other."""
    asked: list[str] = []
    now = 1_000.0

    class Silent:
        def __init__(self, conf: dict[str, Any]) -> None:
            self.conf = conf

        def lookup_schema(self, subject: str, *_: object, **__: object) -> None:
            asked.append(subject)
            raise OSError("timed out")

    monkeypatch.setattr(module, "SchemaRegistryClient", Silent)
    monkeypatch.setattr(module, "boottime", lambda: now)
    topic = topics(name, SchemaRegistry({"url": "http://registry"}))["avro"]
    for seconds, calls in ((0.0, 1), (module.PAUSE - 0.1, 1), (0.2, 2)):
        now += seconds
        with pytest.raises(RegistryUnavailable, match="unavailable: timed out"):
            topic.message(GOOD, key="k")
        assert asked == [f"{name}-value"] * calls


def test_a_registry_that_has_ended_is_a_warning_of_the_check(
    name: str, away: SchemaRegistry
) -> None:
    topic = topics(name, away)["avro"]
    warning = only(messages(topic))
    assert warning.id == "django_outbox.W019"
    assert f"Schema registry {away.url} unavailable: " in warning.msg


def test_a_consumer_waits_for_the_registry(name: str, away: SchemaRegistry) -> None:
    """An outage must not bring messages to the dead letter topic."""
    topic = topics(name, away)["avro"]
    with pytest.raises(RegistryUnavailable) as refused:
        topic.read(arrived(name, b"\0\0\0\0\7\2"))
    assert is_service_unavailable(refused.value)
    assert refused.value.retriable


def test_json_is_read_without_a_registry(
    name: str, registry: SchemaRegistry, away: SchemaRegistry
) -> None:
    topic = topics(name, registry)["json"]
    register_schema(topic)
    value = encoded(topic, GOOD)
    assert topics(name, away)["json"].read(arrived(name, value)) == GOOD


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((404, b"<html>not here</html>"), "HTTP status code 404"),
        ((401, {"error_code": 401, "message": "no"}), "Check basic.auth.user.info."),
        ((500, {"error_code": 50001, "message": "oh"}), "oh (HTTP status code 500"),
    ],
)
def test_an_answer_of_no_use_says_nothing_of_a_schema(
    answer: tuple[int, Any], problem: str, name: str
) -> None:
    with registry_server() as server:
        server.answers["/schemas/ids/7"] = answer
        strange = SchemaRegistry({"url": server.url, "max.retries": 0})
        with pytest.raises(RegistryUnavailable) as refused:
            strange.client.get_schema(7)
        strange.close()
    assert problem in str(refused.value)


def test_a_process_does_not_use_the_connections_of_its_parent(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SchemaRegistryClient] = []

    class Counted(SchemaRegistryClient):
        def __init__(self, conf: dict[str, Any]) -> None:
            made.append(self)
            super().__init__(conf)

    monkeypatch.setattr(module, "SchemaRegistryClient", Counted)
    registry.client.get_subjects()
    registry.client.get_subjects()
    assert len(made) == 1
    monkeypatch.setattr(module, "os", SimpleNamespace(getpid=lambda: -1))
    registry.client.get_subjects()
    assert len(made) == 2
    for one in made:
        one.__exit__(None, None, None)  # type: ignore[no-untyped-call]


# Declarations.


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, "url must be an http:// or https:// URL"),
        ({"url": "registry:8081"}, "url must be an http:// or https:// URL"),
        ({"url": "http://a,ftp://b"}, "url must be an http:// or https:// URL"),
        ({"url": "http://me:secret@registry"}, "move user and password"),
    ],
)
def test_a_wrong_url_is_refused(properties: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        SchemaRegistry(properties)
    assert "secret" not in str(refused.value)


def test_a_wrong_property_is_refused_at_the_first_call(name: str) -> None:
    wrong = SchemaRegistry({"url": "http://registry", "tiemout": 1})
    topic = topics(name, wrong)["json"]
    with pytest.raises(ConfigurationError, match="tiemout"):
        topic.message(GOOD, key="k")
    assert only(messages(topic)).id == "django_outbox.W019"


def test_a_wrong_schema_or_type_is_refused(tmp_path: Path, url: str) -> None:
    registry = SchemaRegistry({"url": url})
    for schema in ("{", '{"type": "recrod"}', tmp_path / "missing.avsc"):
        with pytest.raises(ConfigurationError, match=r"^t: invalid Avro schema: "):
            Topic("t", key=str, value=Placed, encoding=RegisteredAvro(registry, schema))
    with pytest.raises(ConfigurationError, match="not a message class"):
        Topic("t", key=str, value=Placed, encoding=RegisteredProtobuf(registry))
    shipments = Topic(
        "t", key=str, value=Shipment, encoding=RegisteredProtobuf(registry)
    )
    with pytest.raises(ConfigurationError, match="no JSON Schema"):
        shipments.json_schema()


# The page.


@pytest.mark.django_db
def test_the_page_does_what_it_says(
    url: str,
    settings: Settings,
    outbox: OutboxFixture,
    declared: list[handlers.Subscription],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created: list[dict[str, Any]] = []

    class Invoice:
        class objects:  # noqa: N801
            create = staticmethod(lambda **fields: created.append(fields))

    generated = ModuleType("shop.shipment_pb2")
    generated.Shipment = Shipment  # type: ignore[attr-defined]
    page = ModuleType("shop.topics")
    for one in (ModuleType("shop"), generated, page):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    monkeypatch.setenv("SCHEMA_REGISTRY_AUTH", "user:password")
    names = vars(page)
    names["Invoice"] = Invoice
    first, *blocks = BLOCKS
    configured: dict[str, Any] = {}
    exec(first, configured)  # noqa: S102
    properties = configured["SCHEMA_REGISTRY"]
    assert SchemaRegistry(properties).url == properties["url"]
    settings.SCHEMA_REGISTRY = {"url": url, **PATIENT}
    for number, block in enumerate(blocks, start=1):
        code = compile(block, f"block {number} of schema-registry.md", "exec")
        exec(code, names)  # noqa: S102
    (subscription,) = declared
    order, payment, shipment = outbox.drain()
    assert OutboxRecord.objects.count() == 0
    subscription.handle(order)
    assert created == [{"order": 17, "amount": Decimal("9.50")}]
    assert names["payments"].read(payment) == names["Paid"](order=17, cents=950)
    assert names["shipments"].read(shipment).id == "s-1"
    names["registry"].close()


def test_a_silent_registry_costs_a_request_a_few_seconds() -> None:
    """The page says about four."""
    assert "after about four seconds" in PAGE
    assert "next three seconds" in PAGE
    attempts = 1 + module.DEFAULTS["max.retries"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        registry = SchemaRegistry({"url": f"http://127.0.0.1:{port}", "timeout": 0.05})
        with pytest.raises(RegistryUnavailable):
            registry.client.get_subjects()
    assert attempts * module.DEFAULTS["timeout"] == 4.0
    assert module.PAUSE == 3.0
