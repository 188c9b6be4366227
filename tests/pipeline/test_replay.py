"""History sent again: which records, in which order, and where it may go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Message

from django_outbox.exceptions import ConfigurationError, TopicMissing
from django_outbox.pipeline import commands
from django_outbox.pipeline.__main__ import main, parser
from django_outbox.pipeline.commands.replay import ids
from django_outbox.pipeline.commands.shared_options import moment
from django_outbox.pipeline.lake import tables
from django_outbox.pipeline.lake.epochs import ranked
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings
from django_outbox.pipeline.resend import history
from django_outbox.pipeline.resend.history import Destination, Part, outgoing, replay
from django_outbox.pipeline.resend.selection import Selection, select

from ..services import Topics, text_of
from .lakes import Contents, FilledLake, Sender

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CREATED = datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.fixture(scope="module")
def settings(
    spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> PipelineSettings:
    """A lake with two keys in two partitions, a late one, and one without a key."""
    topic = topics.create(partitions=2)
    sender = Sender(topics.servers)
    sender.send(topic, 1, 4, 8, key="a", value="old")
    sender.send(topic, 6, key="a", value="late")
    sender.send(topic, 2, 3, key="b", value="{}", partition=1)
    sender.send(topic, 5, key="b", value=None, partition=1)
    sender.send(topic, 7, key=None, value="")
    settings = PipelineSettings(
        lake=str(tmp_path_factory.mktemp("replay") / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
    )
    run_once(spark, settings, stop=threading.Event())
    return settings


@pytest.fixture(scope="module")
def again(
    spark: SparkSession, settings: PipelineSettings
) -> Callable[..., tuple[list[Part], str]]:
    """Replays a selection; returns what it told, and the default topic."""

    def run(
        to: str = "{topic}.replay",
        *,
        is_forced: bool = False,
        keeps_partitions: bool = False,
        **selection: object,
    ) -> tuple[list[Part], str]:
        destination = Destination(
            to=to, is_forced=is_forced, keeps_partitions=keeps_partitions
        )
        chosen = Selection(topics=settings.topics, **selection)  # type: ignore[arg-type]
        parts = replay(spark, settings, chosen, destination, run="r-1")
        return parts, destination.of(settings.topics[0])

    return run


def texts(message: Message) -> dict[str, str]:
    return {name: text_of(value) for name, value in message.headers() or ()}


def test_a_new_topic_gets_each_key_in_its_order(
    again: Callable[..., tuple[list[Part], str]],
    settings: PipelineSettings,
    topics: Topics,
) -> None:
    (part,), topic = again(includes_late=True)
    assert part == Part(
        source="shop",
        topic=settings.topics[0],
        destination=topic,
        records=8,
        bytes=7 + 3 * 3 + 4 + 2 * 2,
    )
    sent = topics.read(topic, at_least=8)
    by_key: dict[bytes | None, list[tuple[str, bytes | None]]] = {}
    for message in sent:
        headers = texts(message)
        by_key.setdefault(message.key(), []).append(
            (headers["outbox-id"], message.value())
        )
        assert list(headers) == [
            *("outbox-message-id", "outbox-id", "outbox-source"),
            *("outbox-created-at", "outbox-replay"),
        ]
        assert headers["outbox-message-id"] == f"shop-{headers['outbox-id']}"
        assert headers["outbox-replay"] == "r-1"
    assert by_key == {
        b"a": [("1", b"old"), ("4", b"old"), ("6", b"late"), ("8", b"old")],
        b"b": [("2", b"{}"), ("3", b"{}"), ("5", None)],
        None: [("7", b"")],
    }


def test_a_dry_run_counts_and_sends_nothing(
    settings: PipelineSettings,
    topics: Topics,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (topic,), to = settings.topics, topics.create()
    monkeypatch.setattr(commands.replay, "session", lambda _: nullcontext(spark))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", topics.servers)
    asked = ["replay", f"--lake={settings.lake}", f"--topic={topic}", "--dry-run"]
    some = ["--key=b", "--id=1-2", "--id=5-", "--since=2023-11-14", "--until=1s"]
    assert main([*asked, *some, "--where=id < 9", "--late", f"--to={to}"]) == 0
    out, err = capsys.readouterr()
    assert out == f"shop {topic} -> {to}: 2 records, 4 bytes\n"
    assert err.startswith("Dry run: nothing was sent. Estimated duration: 0:00:00,")
    assert topics.read(to) == []
    assert main([*asked, "--id=900"]) == 0
    assert capsys.readouterr() == ("", "No records match.\n")
    assert main([*asked, f"--to={topic}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"replay: to: {topic} is in use" in line


def test_an_estimate_is_by_count_or_by_size() -> None:
    part = Part(source="", topic="", destination="", records=60_000, bytes=10)
    assert part.seconds == 2
    assert replace(part, bytes=10**9).seconds == 50


def test_a_topic_in_use_is_refused(
    again: Callable[..., tuple[list[Part], str]],
    settings: PipelineSettings,
    spark: SparkSession,
) -> None:
    (topic,) = settings.topics
    with pytest.raises(ConfigurationError, match=rf"to: {topic} is in use.*--force"):
        again("{topic}")
    wide = replace(settings, topics=(), topic_pattern=r"test-.*")
    for found in (wide, replace(settings, topics=())):
        selection, destination = Selection(keys=("a",)), Destination(to=topic)
        with pytest.raises(ConfigurationError, match="in use"):
            replay(spark, found, selection, destination, run="r", is_dry=True)
    # The name of a copy fits the pattern, too: the next ingest would find it.
    with pytest.raises(ConfigurationError, match=r"to: .*\.replay is in use"):
        replay(spark, wide, selection, Destination(), run="r", is_dry=True)


def test_what_is_forced_into_a_topic_in_use_changes_no_table_but_bronze(
    again: Callable[..., tuple[list[Part], str]],
    settings: PipelineSettings,
    spark: SparkSession,
) -> None:
    before = Contents(spark, settings)
    (part,), topic = again("{topic}", is_forced=True, includes_late=True)
    assert part.records == 8
    run_once(spark, settings, stop=threading.Event())
    after = Contents(spark, settings)
    assert after.count("bronze") == before.count("bronze") + 8
    columns = ("id", "message_id", "partition", "offset", "value")
    for table in ("silver", "late", "latest", "quarantine"):
        assert after(table, topic, *columns) == before(table, topic, *columns)


def test_partitions_are_kept_on_demand_and_missing_ones_are_told(
    again: Callable[..., tuple[list[Part], str]],
    settings: PipelineSettings,
    topics: Topics,
    spark: SparkSession,
) -> None:
    wide, narrow = topics.create(partitions=2), topics.create()
    again(wide, keeps_partitions=True, keys=("a", "b"))
    places = {(m.key(), m.partition()) for m in topics.read(wide, at_least=6)}
    assert places == {(b"a", 0), (b"b", 1)}
    impatient = replace(settings, kafka={**settings.kafka, "max.block.ms": "500"})
    destination = Destination(to=narrow, keeps_partitions=True)
    with pytest.raises(TopicMissing, match=r"in metadata.*Create it.*\(--to\)"):
        replay(spark, impatient, Selection(keys=("b",)), destination, run="r")


@pytest.mark.parametrize("where", ["no_such_column = 1", "id >", "id", "sum(id) > 1"])
def test_a_wrong_condition_is_named(where: str, silver: DataFrame) -> None:
    with pytest.raises(ConfigurationError) as caught:
        select(silver, Selection(where=where))
    assert str(caught.value).startswith(f"where: {where!r} must be an SQL")
    assert "message_id" in str(caught.value)


@pytest.fixture
def silver(spark: SparkSession) -> DataFrame:
    """Three records; the last one does not say when it was created."""
    day = timedelta(days=1)
    rows = [
        {"topic": "orders", "id": 1, "created_at": CREATED, "key": b"a"},
        {"topic": "orders", "id": 2, "created_at": CREATED + day, "key": None},
        {"topic": "orders-2", "id": 3, "timestamp": CREATED + 2 * day, "key": b"c"},
    ]
    return spark.createDataFrame(rows, tables.SCHEMAS["silver"])


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), {1, 2, 3}),
        (Selection(topics=("orders",)), {1, 2}),
        (Selection(topic_pattern="orders"), {1, 2}),
        (Selection(topic_pattern="orders-."), {3}),
        (Selection(since=CREATED + timedelta(days=1)), {2, 3}),
        (Selection(until=CREATED + timedelta(days=1)), {1}),
        (Selection(keys=("a", "c", "d")), {1, 3}),
        (Selection(ids=((1, 1), (3, 9))), {1, 3}),
        (Selection(where="key IS NULL OR id = 3", topics=("orders",)), {2}),
    ],
)
def test_a_record_is_meant_if_all_of_the_selection_is_true(
    selection: Selection, found: set[int], silver: DataFrame
) -> None:
    assert {row["id"] for row in select(silver, selection).collect()} == found


def test_a_record_without_headers_gets_one(silver: DataFrame) -> None:
    records = ranked(silver.limit(1), PipelineSettings(lake="none"))
    row = outgoing(records, Destination(to="x-{topic}"), run="r").collect()[0]
    assert (row["topic"], row["partition"], row["key"]) == ("x-orders", None, b"a")
    assert [(h["key"], h["value"]) for h in row["headers"]] == [("outbox-replay", b"r")]


def test_ids_that_began_again_are_sent_behind_those_of_the_former_epoch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": "nowhere:9092"},
        epochs={"shop": (CREATED.isoformat(),)},
    )
    lake = FilledLake(spark, settings)
    lake.put(150, created_at="1600000000000000")
    lake.put(20)
    lake.refine()
    sent: list[list[str]] = []

    def note(records: DataFrame, _: PipelineSettings, *, again: str) -> None:
        assert "header outbox-replay=r." in again
        sent.append([dict(row["headers"])["outbox-id"] for row in records.collect()])

    monkeypatch.setattr(history, "send", note)
    replay(spark, settings, Selection(), Destination(), run="r")
    assert sent == [[b"150", b"20"]]


def test_times_and_ids_are_read_as_people_write_them() -> None:
    assert ids("17") == (17, 17)
    assert ids("17-20") == (17, 20)
    assert ids("17-") == (17, 2**63 - 1)
    assert moment("2023-11-14T22:13:20") == CREATED
    assert moment("2023-11-14T23:13:20+01:00") == CREATED
    late = timedelta(hours=2) - (datetime.now(UTC) - moment("2h"))
    assert abs(late) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--id=20-17", "its start is above its end"),
        ("--id=x", "must look like 17, 17-20 or 17-"),
        ("--since=monday", "a time such as 2026-01-31T12:00Z or an age such as 2h"),
    ],
)
def test_a_wrong_option_is_told(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["replay", option])
    assert message in capsys.readouterr().err
