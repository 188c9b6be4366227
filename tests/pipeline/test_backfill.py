"""A table's rows as a first state, and the events before and behind it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from django_outbox.exceptions import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    KafkaError,
)
from django_outbox.pipeline import commands
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings
from django_outbox.pipeline.resend.business_table import (
    NAMESPACE,
    backfill,
    preview,
    uuid5,
)
from django_outbox.pipeline.resend.position import OpenWriter, find_position
from django_outbox.pipeline.resend.snapshot import Snapshot, examine, read

from ..services import Topics, text_of
from .lakes import Contents, Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "backfill.Orders"
INSERT = (
    "INSERT INTO outbox (kafka_topic, kafka_key, kafka_value, kafka_header_keys,"
    " kafka_header_values) VALUES ('orders', %s, '{}', '{}', '{}')"
    " RETURNING id, message_id::text"
)


@pytest.fixture
def orders(postgres: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A table with three orders, in a schema of its own."""
    postgres.execute("CREATE SCHEMA backfill")
    postgres.execute(
        'CREATE TABLE backfill."Orders" (id int, shop text, t numeric(9, 2),'
        ' "placedAt" timestamptz, PRIMARY KEY (shop, id))'
    )
    postgres.execute(
        "INSERT INTO backfill.\"Orders\" SELECT n, 'north', n / 2.0,"
        " '2023-11-14T23:13:20+01' FROM generate_series(1, 3) n"
    )
    yield postgres
    postgres.execute("DROP SCHEMA backfill CASCADE")


@pytest.fixture
def settings(
    database_url: str, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> PipelineSettings:
    return PipelineSettings(
        lake=str(tmp_path_factory.mktemp("backfill") / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topics.create(),),
        database_url=database_url,
        source="shop",
    )


def stash(connection: psycopg.Connection, key: str = "north:1") -> tuple[int, str]:
    """Write a message as SQL of any language does; returns id and message id."""
    row = connection.execute(INSERT, [key]).fetchone()
    assert row is not None
    return row[0], row[1]


def test_events_follow_a_snapshot_without_a_gap(
    spark: SparkSession,
    settings: PipelineSettings,
    orders: psycopg.Connection,
    topics: Topics,
) -> None:
    (topic,) = settings.topics
    waited: list[OpenWriter] = []
    with psycopg.connect(settings.database_url) as slow:
        # It has drawn its id, and others draw higher ones and commit.
        slow_event = stash(slow)
        slow.execute('UPDATE backfill."Orders" SET t = 11 WHERE id = 1')
        last, _ = stash(orders, "north:9")

        def commit(writers: list[OpenWriter]) -> None:
            waited.extend(writers)
            # What begins now is not waited for, and has a higher id.
            early.append(stash(orders, "north:2"))
            orders.execute('UPDATE backfill."Orders" SET t = 22 WHERE id = 2')
            slow.commit()

        early: list[tuple[int, str]] = []
        snapshot = Snapshot(table=TABLE, to=topic)
        outcome = backfill(spark, settings, snapshot, waiting=commit)
        assert [writer.pid for writer in waited] == [slow.info.backend_pid]
    later_event = stash(orders)

    assert (outcome.position, outcome.records) == (last, 3)
    assert slow_event[0] < last < early[0][0] < later_event[0]
    sent = topics.read(topic, at_least=3)
    assert [(m.key(), json.loads(m.value() or b"")) for m in sent] == [
        (
            f"north:{id}".encode(),
            {
                "id": id,
                "shop": "north",
                "t": t,
                "placedAt": "2023-11-14T22:13:20+00:00",
            },
        )
        for id, t in ((3, 1.5), (1, 11.0), (2, 22.0))
    ]
    seed = f"shop/{TABLE}/{last}/north:3"
    assert [(name, text_of(value)) for name, value in sent[0].headers() or ()] == [
        ("outbox-message-id", str(uuid.uuid5(NAMESPACE, seed))),
        ("outbox-id", str(last)),
        ("outbox-source", "shop"),
        ("outbox-created-at", str(outcome.created_at)),
        ("outbox-backfill", TABLE),
    ]

    # Another run with the position sends copies; then the relay catches up.
    again = backfill(spark, settings, snapshot, position=last)
    assert again.position == last
    sender = Sender(topics.servers)
    for (id, message_id), key in (
        *((slow_event, "north:1"), (early[0], "north:2"), (later_event, "north:1")),
    ):
        sender.send(topic, id, key=key, message_id=message_id)
    run_once(spark, settings, stop=threading.Event())
    lake = Contents(spark, settings)
    assert lake.count("bronze") == 9
    assert lake("latest", topic, "key", "id") == [
        (b"north:1", later_event[0]),
        (b"north:2", early[0][0]),
        (b"north:3", last),
    ]
    assert lake.ids("silver", topic) == [last] * 3 + [early[0][0], later_event[0]]
    # The snapshot has what it tells: it is the older one, and is kept.
    assert lake("late", topic, "id", "mark") == [(slow_event[0], last)]


def test_whoever_does_not_end_is_named_and_nothing_is_sent(
    spark: SparkSession,
    settings: PipelineSettings,
    orders: psycopg.Connection,
    topics: Topics,
) -> None:
    (topic,) = settings.topics
    assert find_position(spark, settings, timeout=0).id == stash(orders)[0] - 1
    url = f"{settings.database_url}?application_name=importer"
    with psycopg.connect(url) as slow:
        stash(slow)
        pid = slow.info.backend_pid
        said = rf"wrote to outbox are still open: pid {pid} \(importer\) for \d"
        with pytest.raises(DatabaseError, match=said):
            backfill(spark, settings, Snapshot(table=TABLE, to=topic), timeout=0.1)
        slow.rollback()
    assert topics.read(topic) == []
    orders.execute("ALTER SEQUENCE outbox_id_seq CACHE 20")
    try:
        with pytest.raises(ConfigurationError, match="outbox_id_seq has CACHE 20"):
            find_position(spark, settings, timeout=0)
    finally:
        orders.execute("ALTER SEQUENCE outbox_id_seq CACHE 1")
    with pytest.raises(ConfigurationError, match=r"position: .* above the last id"):
        snapshot = Snapshot(table=TABLE, to=topic)
        backfill(spark, settings, snapshot, position=10**15)


def test_rows_columns_and_keys_are_chosen_and_counted(
    spark: SparkSession,
    settings: PipelineSettings,
    orders: psycopg.Connection,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (topic,) = settings.topics
    chosen = Snapshot(
        table=TABLE,
        to=topic,
        key=("id",),
        columns=("t", "shop"),
        where="t.id > 1 -- not the first",
    )
    planned = preview(spark, settings, chosen)
    assert (planned.records, planned.position) == (2, None)
    assert topics.read(topic) == []
    monkeypatch.setattr(commands.backfill, "session", lambda _: nullcontext(spark))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", topics.servers)
    monkeypatch.setenv("DATABASE_URL", settings.database_url)
    monkeypatch.setenv("OUTBOX_SOURCE", "shop")
    note = tmp_path / "backfill.json"
    asked = ["backfill", f"--lake={settings.lake}", f"--table={TABLE}", f"--to={topic}"]
    some = ["--key=id", "--columns=t,shop", f"--where={chosen.where}"]
    assert main([*asked, *some, f"--json={note}"]) == 0
    told = json.loads(note.read_text())
    assert (told["table"], told["topic"], told["records"]) == (TABLE, topic, 2)
    out, err = capsys.readouterr()
    assert out == f"{TABLE} -> {topic}: 2 rows\nposition {told['position']}\n"
    assert f"sending with position {told['position']}\n" in err
    assert [(m.key(), m.value()) for m in topics.read(topic, at_least=2)] == [
        (b"2", b'{"t":1.00,"shop":"north"}'),
        (b"3", b'{"t":1.50,"shop":"north"}'),
    ]

    for wrong, said in (
        ({"key": ("shop",)}, "key: 2 rows have 1 keys"),
        ({"key": ("no_such",)}, "column t.no_such does not exist"),
        ({"key": ("id; DROP",)}, "'id; DROP' must be a plain SQL name"),
        ({"where": "id >"}, "or the condition: error from the database: syntax error"),
        ({"table": "nowhere"}, "table: 'nowhere', .*relation \"nowhere\""),
        ({"table": "pg_locks", "key": ()}, "has no primary key"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            preview(spark, settings, replace(chosen, **wrong))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="source is not set"):
        preview(spark, replace(settings, source=""), chosen)
    nobody = replace(settings, database_url="postgres://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
        preview(spark, nobody, chosen)


def test_a_backfill_that_failed_says_how_its_rows_become_copies(
    spark: SparkSession, settings: PipelineSettings, orders: psycopg.Connection
) -> None:
    positions: list[int] = []
    impatient = replace(settings, kafka={**settings.kafka, "max.block.ms": "500"})
    snapshot = Snapshot(table=TABLE, to="no/topic has this name")
    with pytest.raises(KafkaError) as caught:
        backfill(spark, impatient, snapshot, sending=positions.append)
    (position,) = positions
    assert f"Run the same command with `--position {position}`" in str(caught.value)


def test_columns_that_an_index_only_carries_are_no_part_of_the_key(
    spark: SparkSession, settings: PipelineSettings, orders: psycopg.Connection
) -> None:
    orders.execute(
        "CREATE TABLE backfill.carried (id bigint, status text,"
        " PRIMARY KEY (id) INCLUDE (status));"
        "INSERT INTO backfill.carried VALUES (17, 'open')"
    )
    carried = Snapshot(table="backfill.carried", to=settings.topics[0])
    (row,) = read(spark, settings, examine(spark, settings, carried)).collect()
    assert row["key"] == "17"


def test_message_ids_are_uuids_of_version_5(spark: SparkSession) -> None:
    names = [f"shop/orders/{n}/{'ä' * n}" for n in range(40)]
    rows = spark.createDataFrame([(name,) for name in names], "name STRING")
    found = [row[0] for row in rows.select(uuid5(rows["name"])).collect()]
    assert found == [str(uuid.uuid5(NAMESPACE, name)) for name in names]
