"""Avro's and Protobuf's schemas and values: columns, framing, refusals."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.payloads.columnar import decode
from django_outbox.pipeline.payloads.declared import Encoded
from django_outbox.pipeline.payloads.decoder import check, make_decoder
from django_outbox.pipeline.payloads.framing import Undecodable, message_path, schema_id
from django_outbox.pipeline.payloads.registry import Registered, Writers
from django_outbox.pipeline.pipeline_settings import build

from .payloads import (
    FILE,
    MESSAGE,
    PAYMENT,
    avro,
    framed,
    proto_set,
    shipment,
)

TOKEN = UUID("12345678-1234-4678-9234-567812345678")

PAID: dict[str, Any] = {
    "number": 7,
    "state": "PAID",
    "note": None,
    "amount": Decimal("12.50"),
    "day": date(2026, 11, 21),
    "at": datetime(2026, 11, 21, 10, 0, 0, 5000, tzinfo=UTC),
    "tags": ["a", "b"],
    "weights": {"kg": 1.5},
    "payer": {"token": TOKEN},
    "payee": None,
}

SHIPPED: dict[str, Any] = {
    "id": "s-1",
    "carrier": 1,
    "tags": ["a", "b"],
    "weights": {"kg": -3},
    "stops": [{"place": "Ulm"}, {"place": "Bonn"}],
    "at": {"seconds": 1_700_000_000, "nanos": 5_000_000},
    "note": {"value": ""},
    "total": 2**64 - 1,
}


def record(type_: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": "a", "type": type_, **more}]
    return {"type": "record", "name": "R", "fields": fields}


def of_avro(schema: Any, **more: Any) -> Encoded:
    return Encoded(format="avro", schema=json.dumps(schema).encode(), **more)


def of_proto(*texts: str, message: str = MESSAGE, **more: Any) -> Encoded:
    return Encoded(format="protobuf", schema=proto_set(*texts), message=message, **more)


def column(encoded: Encoded) -> str:
    """The type of the first column, in SQL's words."""
    return make_decoder(encoded).columns.fields[0].dataType.simpleString()


def read(
    encoded: Encoded, *values: bytes, writers: Writers = ()
) -> tuple[list[Any], list[str | None]]:
    found, reasons = decode(values, make_decoder(encoded, writers))
    return found.to_pylist(), reasons


@pytest.mark.parametrize(
    ("schema", "sql"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ({"type": "long"}, "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "string"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "decimal(9,2)",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, "binary"),
        (["null", "int"], "int"),
        (["string", "null"], "string"),
        (["int", "null", "long"], "bigint"),
        (["float", "double"], "double"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        (
            {"type": "map", "values": {"type": "array", "items": "long"}},
            "map<string,array<bigint>>",
        ),
        (
            {"type": "record", "name": "S", "fields": [{"name": "b", "type": "int"}]},
            "struct<b:int>",
        ),
    ],
)
def test_avros_types_have_columns(schema: Any, sql: str) -> None:
    assert column(of_avro(record(schema))) == sql


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(["string", "int"]), "a union of 2 types has no column"),
        ([], "a union of 0 types has no column"),
        (record("null"), "the type null alone has no column"),
        (record(["null", "R"]), "R is recursive"),
        ({"type": "map", "values": "int"}, "must be a record"),
        (record("nothing"), "invalid Avro schema"),
        ({"type": "record"}, "invalid Avro schema"),
    ],
)
def test_avros_schemas_without_columns_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_decoder(of_avro(schema))


def test_an_avro_record_comes_as_it_was_written() -> None:
    rows, reasons = read(of_avro(PAYMENT), avro(PAYMENT, PAID))
    assert reasons == [None]
    assert rows == [{**PAID, "weights": [("kg", 1.5)], "payer": {"token": str(TOKEN)}}]


def test_what_is_no_avro_of_that_schema_is_told_and_the_rest_is_read() -> None:
    whole = avro(PAYMENT, PAID)
    rows, reasons = read(
        of_avro(PAYMENT), whole, whole[:-3], whole + b"\0", b"", b"no Avro", whole
    )
    assert [row is not None for row in rows] == [True, *[False] * 4, True]
    assert [reason is None for reason in reasons] == [True, *[False] * 4, True]
    assert reasons[2] == f"1 of {len(whole) + 1} bytes remain after decoding"


def test_what_no_column_can_hold_is_told_and_the_rest_is_read() -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 3}
    rows, reasons = read(
        of_avro(record(money)),
        avro(record("bytes"), {"a": b"\x01"}),
        avro(record("bytes"), {"a": b"\x7f\xff\xff"}),
    )
    assert rows == [{"a": Decimal(1)}, None]
    assert reasons[0] is None
    assert reasons[1]


def test_a_writers_schema_is_resolved_to_the_declared_one() -> None:
    declared = record({"type": "long", "logicalType": "timestamp-millis"})
    declared["fields"] += [
        {"name": "b", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "c", "type": ["null", "string"], "default": None},
    ]
    older = record({"type": "long", "logicalType": "timestamp-micros"})
    named = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "T"}]}
    writers: Writers = (
        (1, Registered(kind="AVRO", text=json.dumps(older))),
        (2, Registered(kind="AVRO", text=json.dumps(record("long")))),
        (3, Registered(kind="AVRO", text=json.dumps(record("string")))),
        (4, Registered(kind="PROTOBUF", text="")),
        (5, "the registry has no schema 5"),
        (
            6,
            Registered(
                kind="AVRO",
                text=json.dumps(named),
                references=(json.dumps({"type": "fixed", "name": "T", "size": 2}),),
            ),
        ),
    )
    at = datetime(2026, 11, 21, tzinfo=UTC)
    millis = int(at.timestamp()) * 1000
    values = [
        avro(older, {"a": at}, id=1),
        avro(record("long"), {"a": millis}, id=2),
        avro(record("long"), {"a": millis}, id=2),
        avro(record("string"), {"a": "x"}, id=3),
        *(framed(b"", id=id) for id in (4, 5, 7)),
        framed(b"xx", id=6),
        b"no id",
    ]
    rows, reasons = read(of_avro(declared, is_framed=True), *values, writers=writers)
    expected = {"a": at, "b": [], "c": None}
    assert rows == [expected] * 3 + [None] * 6
    assert reasons[:3] == [None] * 3
    assert reasons[4:7] == [
        "its schema has type PROTOBUF instead of AVRO",
        "the registry has no schema 5",
        "schema 7 was not fetched",
    ]
    assert reasons[3]
    assert reasons[7]
    assert reasons[8] == "it starts with byte 110, not with 0 and a schema id"


def test_a_default_is_the_same_for_each_value_that_needs_it() -> None:
    inner = {"type": "map", "values": "int"}
    nested = {"type": "record", "name": "N", "fields": [{"name": "m", "type": inner}]}
    declared = record("int")
    declared["fields"].append({"name": "b", "type": nested, "default": {"m": {"x": 1}}})
    writers: Writers = ((1, Registered(kind="AVRO", text=json.dumps(record("int")))),)
    value = avro(record("int"), {"a": 5}, id=1)
    rows, _ = read(of_avro(declared, is_framed=True), value, value, writers=writers)
    assert rows == [{"a": 5, "b": {"m": [("x", 1)]}}] * 2


def test_the_text_of_a_default_has_a_character_for_each_byte() -> None:
    declared = record("int")
    fixed = {"type": "fixed", "name": "F", "size": 2}
    declared["fields"] += [
        {"name": name, "type": kind, "default": "\u00ff\u0001"}
        for name, kind in (("b", "bytes"), ("c", {"type": "bytes"}), ("d", fixed))
    ]
    writers: Writers = ((1, Registered(kind="AVRO", text=json.dumps(record("int")))),)
    value = avro(record("int"), {"a": 5}, id=1)
    rows, _ = read(of_avro(declared, is_framed=True), value, writers=writers)
    assert rows == [{"a": 5, **dict.fromkeys("bcd", b"\xff\x01")}]


def test_without_a_registry_the_declared_schema_is_the_writers() -> None:
    value = avro(record("int"), {"a": 5}, id=99)
    assert read(of_avro(record("int"), is_framed=True), value) == ([{"a": 5}], [None])


def test_protobufs_types_have_columns() -> None:
    columns = make_decoder(of_proto()).columns
    assert columns.simpleString() == (
        "struct<id:string,parcels:int,carrier:string,tags:array<string>,"
        "weights:map<string,bigint>,stops:array<struct<place:string>>,at:timestamp,"
        "note:string,total:decimal(20,0),last:struct<place:string>>"
    )


def test_a_protobuf_message_comes_as_it_was_written() -> None:
    rows, reasons = read(of_proto(), shipment(**SHIPPED), shipment(), b"\xff")
    assert reasons[:2] == [None, None]
    assert reasons[2]
    assert rows == [
        {
            **SHIPPED,
            "parcels": None,
            "carrier": "POST",
            "weights": [("kg", -3)],
            "at": datetime(2023, 11, 14, 22, 13, 20, 5000, tzinfo=UTC),
            "note": "",
            "total": Decimal(2**64 - 1),
            "last": None,
        },
        {
            **dict.fromkeys(("parcels", "at", "note", "last")),
            "id": "",
            "carrier": "NOBODY",
            "total": Decimal(0),
            "tags": [],
            "weights": [],
            "stops": [],
        },
        None,
    ]


def test_a_number_without_a_name_stays_a_number() -> None:
    rows, _ = read(of_proto(), shipment(carrier=9))
    assert rows[0]["carrier"] == "9"


def test_a_framed_message_must_be_the_declared_one() -> None:
    second, first, nested = b"\x02\x02", b"\0", b"\x04\x02\x00"
    encoded = of_proto(is_framed=True)
    values = [framed(p + shipment(id="s"), id=3) for p in (second, first, nested)]
    values.append(framed(b"\x02\x08", id=3))
    rows, reasons = read(encoded, *values)
    assert [row and row["id"] for row in rows] == ["s", None, None, None]
    assert reasons == [
        None,
        "its message is shop.Nothing",
        "its message is shop.Shipment.Stop",
        "shop.proto has no message at [4]",
    ]


REQUIRED = """
name: "old.proto" package: "shop"
message_type {
  name: "Old"
  field { name: "a" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
}
"""

TREE = """
name: "tree.proto"
message_type {
  name: "Tree"
  field {
    name: "of" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".Tree"
  }
}
"""

IMPORTING = 'name: "a.proto" dependency: "b.proto"'


def test_a_required_field_that_is_missing_is_told() -> None:
    _, reasons = read(of_proto(REQUIRED, message="shop.Old"), b"", b"\x08\x05")
    assert reasons == ["required fields are missing: a", None]


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (of_proto(TREE, message="Tree"), "Tree is recursive"),
        (of_proto(FILE, message="shop.Other"), "has no message shop.Other"),
        (of_proto(FILE, message="shop.Nothing"), "shop.Nothing has no fields"),
        (of_proto(IMPORTING, message="A"), "the imported file b.proto is missing"),
        (
            Encoded(format="protobuf", schema=b"\xff", message="A"),
            "invalid descriptor",
        ),
    ],
)
def test_protobufs_files_without_columns_are_refused(
    encoded: Encoded, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_decoder(encoded)


@pytest.mark.parametrize(
    ("bytes_", "path", "begin"),
    [
        (b"\0", (0,), 6),
        (b"\x02\x00", (0,), 7),
        (b"\x04\x02\x06", (1, 3), 8),
        (b"\x02\x80\x02", (128,), 8),
    ],
)
def test_the_list_of_messages_is_read(
    bytes_: bytes, path: tuple[int, ...], begin: int
) -> None:
    assert message_path(framed(bytes_, id=1)) == (path, begin)


@pytest.mark.parametrize(
    "bytes_", [b"", b"\x04\x02", b"\x80", b"\x80" * 12, b"\x01", b"\xfe\x7f"]
)
def test_a_list_of_messages_that_is_none_is_told(bytes_: bytes) -> None:
    with pytest.raises(Undecodable):
        message_path(framed(bytes_, id=1))


def test_an_id_needs_its_zero_and_all_its_bytes() -> None:
    assert schema_id(framed(b"", id=2**32 - 1)) == 2**32 - 1
    for value in (b"", b"\0\0\0\0", b"{\0\0\0\1"):
        with pytest.raises(Undecodable):
            schema_id(value)


AVRO = {"format": "avro", "schema": json.dumps(record("int"))}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schemas": {"t": 5}}, "schemas: t: 5 must be a string with columns"),
        ({"schemas": {"t": {"format": "xml"}}}, "schemas: t: format must be 'avro'"),
        (
            {"schemas": {"t": {"format": "avro"}}},
            "schemas: t: set either file",
        ),
        ({"schemas": {"t": {**AVRO, "file": "x"}}}, "schemas: t: set either file"),
        ({"schemas": {"t": {**AVRO, "message": "x"}}}, "schemas: t: avro has no opti"),
        ({"schemas": {"t": {**AVRO, "confluent": 1}}}, "schemas: t: confluent must"),
        (
            {"schemas": {"t": {"format": "protobuf", "file": "x"}}},
            "schemas: t: message must be the full name",
        ),
        (
            {"schemas": {"t": {"format": "avro", "file": "/nowhere"}}},
            "schemas: t: file: [Errno 2]",
        ),
        ({"registry": "registry:8081"}, "registry: must be an http"),
        ({"registry": "http://a:b@c"}, "registry: move user and password"),
        ({"registry": "http://c", "registry_auth": "a"}, "registry_auth: must be user"),
    ],
)
def test_a_wrong_schema_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build({"lake": "x", **values})
    assert str(caught.value).startswith(message)


def test_a_schema_comes_from_a_file_or_from_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(record("int")))
    settings = build(
        {
            "lake": "x",
            "registry": "https://registry:8081/",
            "registry_auth": "me:secret",
            "schemas": {
                "json": "a INT",
                "file": {"format": "avro", "file": str(file)},
                "table": {"format": "avro", "schema": record("int"), "confluent": True},
            },
        }
    )
    assert settings.schemas["json"] == "a INT"
    (file_schema, table_schema) = (settings.schemas[n] for n in ("file", "table"))
    assert isinstance(file_schema, Encoded)
    assert isinstance(table_schema, Encoded)
    assert json.loads(file_schema.schema) == json.loads(table_schema.schema)
    assert file_schema.registry is None
    assert table_schema.registry is not None
    assert table_schema.registry.url == "https://registry:8081"
    assert "secret" not in repr(settings)
    assert {t: c.names for t, c in check(settings.schemas).items()} == {
        "file": ["a"],
        "table": ["a"],
    }


@pytest.mark.parametrize("package", ["fastavro", "google.protobuf", "pyarrow"])
def test_a_missing_extra_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    form = "protobuf" if "protobuf" in package else "avro"
    # Another one for each: what was made is kept.
    encoded = Encoded(format=form, schema=b"", message=package)
    with pytest.raises(ConfigurationError) as caught:
        check({"payments": encoded})
    said = str(caught.value)
    assert said.startswith(f"schemas: payments: {package} is not installed.")
    assert "django-outbox-kafka[registry]" in said
