"""
Avro and Protobuf from Kafka to typed columns, in one lake.

The registry is away when the pipeline first runs, and there when it runs again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_outbox.exceptions import KafkaUnavailable, RegistryUnavailable
from django_outbox.pipeline import pipeline_run
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.records import INVALID, typed
from django_outbox.pipeline.payloads import registry as module
from django_outbox.pipeline.pipeline_run import (
    Hooks,
    run_every,
    run_once,
    translate,
)
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build
from django_outbox.pipeline.query_progress import Reading

from ..machine import nightly
from ..services import Topics
from .lakes import Contents, Sender
from .payloads import (
    MESSAGE,
    PAYMENT,
    RegistryServer,
    avro,
    framed,
    proto_set,
    registry_server,
    shipment,
)
from .test_payload_types import PAID, SHIPPED, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDER: dict[str, Any] = {
    **PAYMENT,
    "fields": [f for f in PAYMENT["fields"] if f["name"] != "payee"],
}
"""The schema of the writers before a field was added."""

UNPAID = {**PAID, "payer": None, "note": "none yet"}

FOREIGN = record("string")

STOP = b"\x04\x02\x00"
"""Leads to the first message in the file's second one."""

VALUES: dict[str, list[bytes | None]] = {
    "framed avro": [
        avro(PAYMENT, PAID, id=1),
        avro(OLDER, UNPAID, id=2),
        avro(FOREIGN, {"a": "x"}, id=3),
        avro(PAYMENT, PAID, id=4),
        avro(PAYMENT, PAID),
        b"",
        None,
    ],
    "plain avro": [avro(record("int"), {"a": 5}), b"\x0a\x0a"],
    "protobuf": [
        framed(b"\x02\x02" + shipment(**SHIPPED), id=5),
        framed(STOP + shipment(id="s"), id=5),
        framed(b"\x02\x02\xff", id=5),
    ],
    "json": [b'{"a": 1}', b"[]"],
    "undeclared": [b"\0\xff"],
}
"""Per topic; the ids of records are 1, 2, …"""


class Lake:
    """Runs the pipeline without and with the registry, and keeps what came out."""

    def __init__(
        self, spark: SparkSession, topics: Topics, folder: Path, server: RegistryServer
    ) -> None:
        self.spark = spark
        self.server = server
        self.names = {name: topics.create() for name in VALUES}
        sender = Sender(topics.servers)
        for name, values in VALUES.items():
            for id, value in enumerate(values, start=1):
                sender.send(self.names[name], id, value=value)
        (folder / "payment.avsc").write_text(json.dumps(PAYMENT))
        (folder / "shop.desc").write_bytes(proto_set())
        payment, shop = (str(folder / n) for n in ("payment.avsc", "shop.desc"))
        self.settings: PipelineSettings = build(
            {
                "lake": str(folder / "lake"),
                "kafka": {"bootstrap.servers": topics.servers},
                "topics": list(self.names.values()),
                "registry": server.url,
                "schemas": {
                    self.names["framed avro"]: {
                        "format": "avro",
                        "file": payment,
                        "confluent": True,
                    },
                    self.names["plain avro"]: {
                        "format": "avro",
                        "schema": record("int"),
                    },
                    self.names["protobuf"]: {
                        "format": "protobuf",
                        "file": shop,
                        "message": MESSAGE,
                        "confluent": True,
                    },
                    self.names["json"]: "a INT NOT NULL",
                },
            }
        )

    def run(self) -> None:
        run_once(self.spark, self.settings, stop=threading.Event())

    def rows(self, name: str) -> list[dict[str, Any]]:
        silver = tables.read(self.spark, self.settings, "silver")
        topic = self.names[name]
        found = typed(silver, topic=topic, schema=self.settings.schemas[topic])
        return [row.asDict(recursive=True) for row in found.orderBy("offset").collect()]


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    with registry_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RETRY_DELAYS", ())
        found = Lake(spark, topics, tmp_path_factory.mktemp("payloads"), server)
        server.answers = {f"/schemas/ids/{id}": (503, {}) for id in range(1, 6)}
        with pytest.raises(RegistryUnavailable, match="503 Service Unavailable"):
            found.run()
        away = Contents(spark, found.settings)
        counts = {table: away.count(table) for table in tables.SCHEMAS}
        sent = sum(map(len, VALUES.values()))
        assert counts == {**dict.fromkeys(tables.SCHEMAS, 0), "bronze": sent}

        server.answers.clear()
        server.asked.clear()
        server.has_avro(1, PAYMENT)
        server.has_avro(2, OLDER)
        server.has_avro(3, FOREIGN)
        server.has_protobuf(5)
        found.run()
        yield found


def test_what_cannot_be_decoded_is_in_quarantine_with_the_reason(lake: Lake) -> None:
    contents = Contents(lake.spark, lake.settings)

    def reasons(name: str) -> dict[int, str]:
        found = contents("quarantine", lake.names[name], "offset", "reason")
        return {offset: reason.removeprefix(INVALID) for offset, reason in found}

    of_avro = reasons("framed avro")
    assert list(of_avro) == [2, 3, 4, 5]
    assert of_avro[2].startswith(": ")
    assert of_avro[3] == ": the registry has no schema 4"
    assert of_avro[4].endswith("not with 0 and a schema id")
    assert of_avro[5] == ": 0 bytes are too short for a schema id"
    assert reasons("plain avro") == {1: ": 1 of 2 bytes remain after decoding"}
    of_protobuf = reasons("protobuf")
    assert list(of_protobuf) == [1, 2]
    assert of_protobuf[1] == ": its message is shop.Shipment.Stop"
    assert reasons("json") == {1: ""}
    assert reasons("undeclared") == {}
    for name, values in VALUES.items():
        count = len(values)
        assert contents.ids("silver", lake.names[name]) == list(range(1, count + 1))


def test_what_can_be_decoded_has_columns(lake: Lake) -> None:
    first, second = lake.rows("framed avro")
    assert (first["id"], first["key"], first["number"]) == (1, "k", 7)
    assert first["amount"] == Decimal("12.50")
    assert first["day"] == date(2026, 11, 21)
    # Spark gives it in the local zone.
    assert first["at"].timestamp() == PAID["at"].timestamp()
    assert first["weights"] == {"kg": 1.5}
    assert first["payer"] == {"token": str(PAID["payer"]["token"])}
    assert (second["note"], second["payer"], second["payee"]) == (
        "none yet",
        None,
        None,
    )
    assert [row["a"] for row in lake.rows("plain avro")] == [5]
    assert [row["a"] for row in lake.rows("json")] == [1]
    (sent,) = lake.rows("protobuf")
    assert sent["carrier"] == "POST"
    assert sent["weights"] == {"kg": -3}
    assert sent["stops"] == [{"place": "Ulm"}, {"place": "Bonn"}]
    assert sent["total"] == 2**64 - 1


def test_the_registry_is_asked_once_for_each_schema(lake: Lake) -> None:
    lake.rows("framed avro")
    known = [path for path in lake.server.asked if path != "/schemas/ids/4"]
    assert len(known) == len(set(known)) == 5


@nightly
def test_a_registry_that_comes_back_is_waited_for(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_DELAYS", ())
    monkeypatch.setattr(pipeline_run, "RETRY_INTERVAL", 0.1)
    topic, stop = topics.create(), threading.Event()
    Sender(topics.servers).send(topic, 1, value=avro(PAYMENT, PAID, id=1))
    heard: list[str] = []

    def observe(reading: Reading) -> None:
        if reading.query == "refine" and reading.rows:
            stop.set()

    with registry_server() as server:
        server.answers["/schemas/ids/1"] = (503, {})
        settings = build(
            {
                "lake": str(tmp_path),
                "kafka": {"bootstrap.servers": topics.servers},
                "topics": [topic],
                "registry": server.url,
                "schemas": {
                    topic: {
                        "format": "avro",
                        "schema": PAYMENT,
                        "confluent": True,
                    }
                },
            }
        )

        def report(line: str) -> None:
            heard.append(line)
            server.has_avro(1, PAYMENT)

        run_every(
            spark,
            settings,
            seconds=0,
            stop=stop,
            observers=[observe],
            hooks=Hooks(report=report),
        )
    assert len(heard) == 1
    assert "503 Service Unavailable" in heard[0]
    assert Contents(spark, settings).ids("silver", topic) == [1]


def test_a_kafka_that_is_away_is_worth_another_attempt() -> None:
    said = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting"
    found = translate(RuntimeError(f"[STREAM_FAILED] …\n{said}\n=== Streaming …"))
    assert isinstance(found, KafkaUnavailable)
    assert found.retriable
    assert str(found) == "Kafka is unavailable: Timed out waiting."


def test_errors_of_ours_come_back_out_of_sparks(spark: SparkSession) -> None:
    text = (
        "[STREAM_FAILED] …\nTraceback (most recent call last):\n"
        "django_outbox.exceptions.ConfigurationError: the cause\n\n"
        "django_outbox.exceptions.RegistryUnavailable: the schema registry …\n"
        "=== Streaming Query ==="
    )
    found = translate(RuntimeError(text))
    assert isinstance(found, RegistryUnavailable)
    assert str(found) == "the schema registry …"
    other = RuntimeError("django_outbox.exceptions.Nothing: x")
    assert translate(other) is other
