"""Real values in Avro and Protobuf, their schemas, and a registry that has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any, Final

from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, text_format, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PAYMENT: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "int"},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "amount",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
        {
            "name": "payer",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Payer",
                    "fields": [
                        {
                            "name": "token",
                            "type": {"type": "string", "logicalType": "uuid"},
                        }
                    ],
                },
            ],
        },
        {"name": "payee", "type": ["null", "Payer"], "default": None},
    ],
}
"""A record with a bit of everything."""

FILE: Final = """
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto"
dependency: "google/protobuf/wrappers.proto"
enum_type {
  name: "Carrier"
  value { name: "NOBODY" number: 0 } value { name: "POST" number: 1 }
}
message_type { name: "Nothing" }
message_type {
  name: "Shipment"
  field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field {
    name: "parcels" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL
    oneof_index: 0 proto3_optional: true
  }
  field {
    name: "carrier" number: 3 type: TYPE_ENUM type_name: ".shop.Carrier"
    label: LABEL_OPTIONAL
  }
  field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
  field {
    name: "weights" number: 5 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".shop.Shipment.WeightsEntry"
  }
  field {
    name: "stops" number: 6 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".shop.Shipment.Stop"
  }
  field {
    name: "at" number: 7 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.Timestamp"
  }
  field {
    name: "note" number: 8 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.StringValue"
  }
  field { name: "total" number: 9 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field {
    name: "last" number: 10 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".shop.Shipment.Stop"
  }
  field {
    name: "nothing" number: 11 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".shop.Nothing"
  }
  nested_type {
    name: "Stop"
    field { name: "place" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "WeightsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_SINT64 label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "_parcels" }
}
"""
"""shop.proto as a compiler describes it; its second message is the one we send."""

MESSAGE: Final = "shop.Shipment"


def avro(schema: Any, row: dict[str, Any], *, id: int | None = None) -> bytes:
    """Write a record; behind the id of its schema, if it has one."""
    buffer = BytesIO()
    schemaless_writer(buffer, parse_schema(schema), row)
    return framed(buffer.getvalue(), id=id)


def framed(value: bytes, *, id: int | None) -> bytes:
    return value if id is None else b"\0" + id.to_bytes(4, "big") + value


def proto_file(text: str = FILE) -> descriptor_pb2.FileDescriptorProto:
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def proto_set(*texts: str) -> bytes:
    """What `protoc --descriptor_set_out` writes, without the imports."""
    files = [proto_file(text) for text in texts or (FILE,)]
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def shipment(**fields: Any) -> bytes:
    """Write a shop.Shipment."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(proto_file().SerializeToString())
    message: Any = GetMessageClass(pool.FindMessageTypeByName(MESSAGE))
    return bytes(message(**fields).SerializeToString())


class RegistryServer:
    """A schema registry with these answers, in the words that all of them use."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            "/schemas/types": (200, ["JSON", "PROTOBUF", "AVRO"])
        }
        self.asked: list[str] = []
        self.authorization: set[str | None] = set()
        self.url = ""

    def has_avro(self, id: int, schema: Any, **more: Any) -> None:
        self.answers[f"/schemas/ids/{id}"] = (
            200,
            {"schema": json.dumps(schema), **more},
        )

    def has_protobuf(self, id: int, text: str = FILE) -> None:
        serialized = base64.b64encode(proto_file(text).SerializeToString()).decode()
        kind = {"schemaType": "PROTOBUF"}
        path = f"/schemas/ids/{id}"
        self.answers[path] = (200, {**kind, "schema": 'syntax = "proto3"; …'})
        self.answers[f"{path}?format=serialized"] = (
            200,
            {**kind, "schema": serialized},
        )

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        unknown = {"error_code": 40403, "message": "Schema not found"}
        return self.answers.get(path, (404, unknown))


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """Run one until the block ends; then nobody answers there."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, content = registry.answer(self.path)
            registry.authorization.add(self.headers["Authorization"])
            body = (
                content if isinstance(content, bytes) else json.dumps(content).encode()
            )
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
