"""
Wrapped values from Kafka to typed columns, with the keys of subjects in PostgreSQL.

One lake: the pipeline runs once, and then a subject is forgotten.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.core.files.storage import FileSystemStorage, Storage

from django_outbox.contrib.claim_check import ClaimCheck
from django_outbox.contrib.compression import Compressed
from django_outbox.contrib.encryption import Encrypted
from django_outbox.contrib.shredding import Shredded
from django_outbox.exceptions import ConfigurationError, ConsumingError
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.records import typed
from django_outbox.pipeline.payloads.unwrapping import Opener, unwrapped
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build
from tests.testapp.models import CustomerKey
from tests.wrapped import sent

from ..machine import nightly
from ..services import Topics
from .lakes import Contents, Sender, outbox_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs/howto/payloads.md").read_text("utf-8")

KEYS = {"new": b"n" * 32, "old": b"o" * 32, "unknown": b"u" * 32}
"""The pipeline does not have the last one."""


class Secret(Encrypted):
    def __init__(self, key_id: str = "old") -> None:
        self._id = key_id

    def keys(self) -> Mapping[str, bytes]:
        return {self._id: KEYS[self._id]}


class Erasable(Shredded):
    model = CustomerKey

    def keys(self) -> Mapping[str, bytes]:
        return {"new": KEYS["new"]}


class Small(Compressed):
    at_least = 50


class Large(ClaimCheck):
    limit = 10

    def __init__(self, folder: Path) -> None:
        self._files = FileSystemStorage(location=folder)

    def _storage(self) -> Storage:
        return self._files


def json(number: int) -> str:
    return f'{{"a": {number}, "text": "{"x" * 100}"}}'


def messages(topic: str, folder: Path) -> list[ConsumedMessage]:
    """Return messages of every kind; their ids are 1, 2, …"""
    large, erasable = Large(folder), Erasable()
    made = [
        sent(value=json(1), topic=topic),
        sent(Small(), value=json(2), topic=topic),
        sent(Secret(), value=json(3), topic=topic),
        sent(Small(), Secret("new"), large, value=json(4), topic=topic),
        sent(Small(), erasable, value=json(5), topic=topic, key="ada"),
        sent(erasable, large, value=json(6), topic=topic, key="ben"),
        sent(Secret("unknown"), value=json(7), topic=topic),
        sent(Secret(), value=None, topic=topic),
        replace(sent(Secret(), value=json(9), topic=topic), key=b"moved"),
        sent(large, value=json(10), topic=topic),
        sent(Small(), Secret(), value="not JSON" * 10, topic=topic),
        sent(value=json(12), topic=topic, headers={"content-encoding": "identity"}),
    ]
    (folder / (made[9].header("claim-check") or "")).unlink()
    CustomerKey.objects.forget("ben")
    return made


def send(servers: str, topic: str, made: list[ConsumedMessage]) -> None:
    producer = Sender(servers).producer()
    for id, message in enumerate(made, start=1):
        headers = [*message.headers, *outbox_headers(id)]
        producer.produce(
            topic, key=message.key, value=message.value, headers=headers, partition=0
        )
    assert producer.flush(10) == 0


class Lake:
    """What the pipeline has made of the messages."""

    def __init__(
        self, spark: SparkSession, topics: Topics, folder: Path, database_url: str
    ) -> None:
        self.spark, self.topic = spark, topics.create()
        self.sent = messages(self.topic, folder)
        send(topics.servers, self.topic, self.sent)
        pairs = [f"{k}:{base64.b64encode(KEYS[k]).decode()}" for k in ("new", "old")]
        self.settings: PipelineSettings = build(
            {
                "lake": str(folder / "lake"),
                "kafka": {"bootstrap.servers": topics.servers},
                "topics": [self.topic],
                "schemas": {self.topic: "a INT NOT NULL"},
                "database_url": database_url,
                "unwrap": True,
                "payload_keys": " ".join(pairs),
                "subject_keys": CustomerKey._meta.db_table,
                "claim_checks": str(folder),
            }
        )

    def run(self) -> Contents:
        run_once(self.spark, self.settings, stop=threading.Event())
        return Contents(self.spark, self.settings)

    def opened(self) -> Any:
        silver = tables.read(self.spark, self.settings, "silver")
        return unwrapped(silver, self.settings)

    def numbers(self) -> list[int]:
        schema = self.settings.schemas[self.topic]
        rows = typed(self.opened(), topic=self.topic, schema=schema).collect()
        return sorted(row["a"] for row in rows)

    def problems(self) -> dict[int, str]:
        rows = self.opened().where("problem IS NOT NULL").collect()
        assert all(row["value"] is None for row in rows)
        return {row["id"]: row["problem"] for row in rows}


@pytest.fixture
def lake(
    spark: SparkSession, topics: Topics, tmp_path: Path, database_url: str
) -> Lake:
    return Lake(spark, topics, tmp_path, database_url)


@nightly
def test_the_lake_keeps_values_wrapped_and_reads_them_unwrapped(lake: Lake) -> None:
    contents = lake.run()
    # The tables have what the topic has.
    values = [(id, message.value) for id, message in enumerate(lake.sent, start=1)]
    assert contents("silver", lake.topic, "id", "value") == sorted(values, key=repr)
    rows = contents("quarantine", lake.topic, "offset", "reason", "value")
    assert {offset + 1: value for offset, _, value in rows} == {
        id: value for id, value in values if id in {7, 9, 10, 11}
    }
    reasons = {offset + 1: reason for offset, reason, _ in rows}
    assert reasons[7] == "The setting payload_keys has no key 'unknown'."
    assert "cannot be decrypted" in reasons[9]
    assert "does not exist" in reasons[10]
    assert reasons[11] == "the value does not match the topic's schema"

    assert lake.numbers() == [1, 2, 3, 4, 5, 12]
    found = lake.problems()
    assert {id: text for id, text in reasons.items() if id != 11} == {
        id: text for id, text in found.items() if text != "erased"
    }
    assert found.keys() - reasons.keys() == {6}

    # Who is forgotten is erased in what was read before, too.
    CustomerKey.objects.forget("ada")
    assert lake.numbers() == [1, 2, 3, 4, 12]
    assert lake.problems()[5] == "erased"

    names: dict[str, Any] = {"spark": lake.spark, "settings": lake.settings}
    (block,) = re.findall(r"```python\n([^`]*unwrapped\(tables[^`]*)```", PAGE)
    exec(block.replace('"customers"', f'"{lake.topic}"'), names)  # noqa: S102
    assert names["customers"].count() == 5
    assert names["unreadable"].count() == 5


def test_without_the_settings_a_value_is_a_problem_and_not_erased(lake: Lake) -> None:
    none = {"payload_keys": "", "subject_keys": "", "claim_checks": ""}
    lake.settings = replace(lake.settings, **none)  # type: ignore[arg-type]
    assert lake.run().count("quarantine") == 8
    assert lake.numbers() == [1, 2, 12]
    assert "erased" not in lake.problems().values()


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("subject_keys", "nowhere", "subject_keys: error from the database"),
        ("subject_keys", "a; b", "subject_keys: 'a; b' must be a plain SQL name"),
        ("database_url", "", "subject_keys: database_url is missing"),
    ],
)
def test_a_wrong_setting_is_named(
    lake: Lake, setting: str, value: str, words: str
) -> None:
    lake.settings = replace(lake.settings, **{setting: value})  # type: ignore[arg-type]
    frame = lake.spark.createDataFrame([], tables.SCHEMAS["silver"])
    with pytest.raises(ConfigurationError, match=words):
        unwrapped(frame, lake.settings)


def test_malformed_keys_are_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigurationError, match="keys: number 1 must be"):
        build({"lake": "l", "payload_keys": "hunter2"})


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    """Reads files of a folder, and knows keys of subjects."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "file").write_bytes(b"x")
    return Opener(keys={}, claim_checks=tmp_path.as_uri(), knows_subjects=True)


def opened(opener: Opener, **headers: str) -> bytes | None:
    names = {"_master": None, "_wrapped_key": None}
    pairs = [
        {"key": name.replace("_", "-"), "value": value.encode()}
        for name, value in headers.items()
    ]
    record = {"topic": "orders", "key": None, "value": b"x", "headers": pairs}
    return opener.open({**record, **names})


@pytest.mark.parametrize("name", ["none", "orders", "orders/file/x", "a" * 300])
def test_a_name_that_no_file_has_is_a_problem_of_its_record(
    opener: Opener, name: str
) -> None:
    """Else each run would end at that record."""
    digest = sha256(b"x").hexdigest()
    claim = {"claim_check_size": "1", "claim_check_sha256": digest}
    assert opened(opener, claim_check="orders/file", **claim) == b"x"
    with pytest.raises(ConsumingError):
        opened(opener, claim_check=name, **claim)


@pytest.mark.parametrize("key_id", [None, "", "no id"])
def test_a_value_without_the_id_of_its_key_was_not_erased(
    opener: Opener, key_id: str | None
) -> None:
    ids = {} if key_id is None else {"encryption_subject_key": key_id}
    with pytest.raises(ConsumingError, match="is not a UUID"):
        opened(opener, encryption="A256GCM", **ids)
    known = {"encryption_subject_key": str(uuid4())}
    assert opened(opener, encryption="A256GCM", **known) is None
