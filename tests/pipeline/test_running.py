"""The pipeline as a process: told to stop, told of progress, without Django."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_outbox.devstack import Stack
from django_outbox.exceptions import ConfigurationError, TopicMissing
from django_outbox.management.commands.outbox_pipeline import defaults
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.audit import database_url, jdbc
from django_outbox.pipeline.diagnosis import _ask_for_ids, examine
from django_outbox.pipeline.payloads.declared import Encoded
from django_outbox.pipeline.payloads.registry import Registry
from django_outbox.pipeline.pipeline_run import run_every, run_once
from django_outbox.pipeline.pipeline_settings import (
    PipelineSettings,
    build,
    read_environment,
)
from django_outbox.pipeline.query_progress import MetricsFile, Reading, read
from django_outbox.pipeline.session import run_mode

from ..machine import nightly
from ..services import Topics
from .lakes import SPARK, Contents, Sender
from .payloads import registry_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

RECORD = b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


def test_a_batch_that_is_run_again_has_no_newest_offsets() -> None:
    """Spark writes null for them, after a process was killed."""
    again = SimpleNamespace(
        name="ingest",
        batchId=3,
        numInputRows=5,
        batchDuration=500,
        sources=[
            SimpleNamespace(
                description="KafkaV2[Subscribe[orders]]",
                latestOffset="null",
                endOffset='{"orders": {"0": 5}}',
            )
        ],
    )
    assert read(again).lag == 0


@pytest.mark.parametrize("topics", [("a,b",), ("a, b",), ("a", "b"), (" a ", "", "b,")])
def test_topics_are_taken_apart_as_spark_does_it(topics: tuple[str, ...]) -> None:
    assert build({"lake": "l", "topics": topics}).topics == ("a", "b")
    environment = {"OUTBOX_PIPELINE_TOPICS": ",".join(topics)}
    assert build({"lake": "l", **read_environment(environment)}).topics == ("a", "b")


def test_metrics_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="metrics_file: the folder of"):
        build({"lake": "l", "metrics_file": str(tmp_path / "none" / "a.prom")})


def test_a_stop_finishes_the_current_batch(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    metrics = tmp_path / "pipeline.prom"
    settings = PipelineSettings(
        lake=str(tmp_path / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topic,),
        batch_records=2,
    )
    Sender(topics.servers).send(topic, 1, 2, 3, 4, 5)
    stop = threading.Event()
    seen: list[Reading] = []
    observe_metrics = MetricsFile(metrics)

    def observe(reading: Reading) -> None:
        seen.append(reading)
        observe_metrics(reading)
        if reading.query == "refine":
            stop.set()

    run_every(spark, settings, seconds=0, stop=stop, observers=[observe])
    lake = Contents(spark, settings)
    refined = sum(r.rows for r in seen if r.query == "refine")
    assert refined >= 1
    assert lake.ids("silver", topic) == list(range(1, refined + 1))
    assert lake.ids("latest", topic) == [refined]
    total = f'django_outbox_pipeline_rows_total{{query="refine"}} {refined}'
    assert total in metrics.read_text().splitlines()
    assert not spark.streams.active


@nightly
def test_a_topic_that_was_read_is_not_left_out_by_mistake(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    stays, goes = topics.create(), topics.create()
    both = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": topics.servers},
        topics=(stays, goes),
    )
    one = replace(both, topics=(stays,))
    none = replace(both, topics=(), topic_pattern=f"{stays}.+")
    sender = Sender(topics.servers)
    sender.send(stays, 1)
    sender.send(goes, 1)

    def run(settings: PipelineSettings) -> None:
        run_once(spark, settings, stop=threading.Event(), steps=("ingest",))

    run(both)
    sender.send(stays, 2)
    with pytest.raises(ConfigurationError, match=f"topics: {goes} has been read"):
        run(one)
    with pytest.raises(ConfigurationError, match=r"topic_pattern: .*, .* has"):
        run(none)
    run(both)
    sender.send(stays, 3)
    run(replace(one, fail_on_data_loss=False))
    sender.send(stays, 4)
    run(one)
    contents = Contents(spark, both)
    assert contents.count("bronze") == 5


def test_a_topic_that_does_not_exist_is_told(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    settings = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topics.create(), "not-there"),
        spark=SPARK,
    )
    with pytest.raises(TopicMissing, match="`doctor` names the missing ones"):
        run_once(spark, settings, stop=threading.Event(), steps=("ingest",))
    (found,) = (f for f in examine(settings) if f.name == "topics")
    assert found.detail == "Kafka has no topic not-there."


@pytest.mark.parametrize("schema", ["status STRNG", "STRING", ""])
def test_columns_that_spark_cannot_read_are_told_at_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, schema: str
) -> None:
    settings = PipelineSettings(
        lake=str(tmp_path),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topics.create(),),
        schemas={"orders": schema},
    )
    message = f"schemas: orders: {schema!r} is not a list of"
    with pytest.raises(ConfigurationError, match=message):
        run_once(spark, settings, stop=threading.Event(), steps=("refine",))


def test_the_pipeline_needs_no_django_and_no_driver() -> None:
    code = (
        "import sys\n"
        "for name in ('django', 'psycopg', 'confluent_kafka'):\n"
        "    sys.modules[name] = None\n"
        "from pkgutil import walk_packages\n"
        "from importlib import import_module\n"
        "import django_outbox.pipeline as pipeline\n"
        "for module in walk_packages(pipeline.__path__, f'{pipeline.__name__}.'):\n"
        "    import_module(module.name)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "lake: set the folder"),
        (["run", "--lake", "x"], "topics: set at least one"),
        (["audit", "--lake", "x", "--topic", "t"], "source: set it to the"),
    ],
)
def test_wrong_settings_are_one_line_and_code_2(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("OUTBOX_PIPELINE_LAKE", "OUTBOX_PIPELINE_TOPICS", "OUTBOX_SOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "nowhere:9092")
    monkeypatch.setenv("DATABASE_URL", "postgres://nowhere/outbox")
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.django_db
def test_a_django_project_has_told_most_of_it_already(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("OUTBOX_PIPELINE_LAKE", raising=False)
    project = {
        "LEADER_GROUP": "shop-outbox",
        "TABLE": "outbox",
        "KAFKA": {"bootstrap.servers": "kafka:9092"},
        "PIPELINE": {"topics": ["orders"], "kafka": {"security.protocol": "SSL"}},
    }
    with override_settings(DJANGO_OUTBOX=project):
        known = defaults()
    url = known.pop("database_url")
    assert url.startswith("postgres://")
    assert known == {
        "kafka": {"bootstrap.servers": "kafka:9092", "security.protocol": "SSL"},
        "table": "outbox",
        "source": "shop-outbox",
        "topics": ["orders"],
    }
    clusters = {"CLUSTERS_COUNT": 2, "CLUSTER_ID": 1}
    with override_settings(DJANGO_OUTBOX={**project, **clusters}):
        known = defaults()
    assert known["source"] == "shop-outbox/1"
    assert known["clusters"] == {"shop-outbox/0": "", "shop-outbox/1": url}
    with pytest.raises(ConfigurationError, match="database URL of shop-outbox/0 is"):
        build({"lake": "x", **known}).outboxes()

    with pytest.raises(SystemExit) as caught:
        call_command("outbox_pipeline", "run", "--once")
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("manage.py outbox_pipeline run: lake: set the folder")


def url_of(database: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the pipeline knows of a project with such a database."""
    values = {"NAME": "shop", "USER": "audit", "PASSWORD": "s/:@", **database}
    monkeypatch.setattr(connections["default"], "settings_dict", values)
    with override_settings(DJANGO_OUTBOX={"SOURCE": "shop", "LEADER_GROUP": "shop"}):
        return str(defaults()["database_url"])


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ({}, "127.0.0.1:5432/shop"),
        ({"HOST": "db", "PORT": "5433"}, "db:5433/shop"),
        ({"HOST": "db-1,db-2"}, "db-1:5432,db-2:5432/shop"),
        ({"HOST": "a,b", "PORT": "5433,5434"}, "a:5433,b:5434/shop"),
        ({"HOST": "::1"}, "[::1]:5432/shop"),
        (
            {
                "HOST": "db",
                "OPTIONS": {
                    "sslmode": "verify-full",
                    "sslrootcert": Path("/etc/ssl/db ca.pem"),
                    "application_name": "shop",
                },
            },
            "db:5432/shop?sslmode=verify-full&sslrootcert=%2Fetc%2Fssl%2Fdb+ca.pem",
        ),
    ],
)
def test_spark_connects_to_the_database_of_the_project_as_django_does(
    database: dict[str, Any], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = url_of(database, monkeypatch)
    options = database_url.options(known)
    assert options["url"] == f"jdbc:postgresql://{url}"
    assert (options["user"], options["password"]) == ("audit", "s/:@")
    settings = PipelineSettings(lake="x", database_url=known)
    assert jdbc.database_names(settings) == (url.partition("?")[0],)


@pytest.mark.parametrize(
    "database",
    [
        {"HOST": "/var/run/postgresql"},
        {"HOST": "/cloudsql/project:region:shop"},
        {"OPTIONS": {"service": "shop"}},
    ],
)
def test_a_database_without_a_host_is_refused_where_it_is_needed(
    database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(database, monkeypatch)
    with pytest.raises(ConfigurationError, match="Set DATABASE_URL"):
        database_url.options(url)


def test_the_doctor_finds_all_well_and_tells_what_is_not(
    spark: SparkSession, topics: Topics, services: Stack, tmp_path: Path
) -> None:
    with psycopg.connect(services.database_url, autocommit=True) as connection:
        for table in ("doctored", "doctored_archive", "doctored_parked"):
            connection.execute(f"CREATE TABLE {table} ()")
    well = PipelineSettings(
        lake=str(tmp_path / "lake"),
        kafka={"bootstrap.servers": topics.servers},
        topics=(topics.create(),),
        database_url=services.database_url,
        table="doctored",
        spark=SPARK,
    )
    with registry_server() as server:
        registry = Registry(url=server.url)
        payments = Encoded(format="avro", schema=RECORD, registry=registry)
        schemas: dict[str, str | Encoded] = {
            "payments": payments,
            "orders": "status STRING NOT NULL, n INT",
        }
        well = replace(well, schemas=schemas)
        found = list(examine(well, topic=topics.create()))
    assert [result for result in found if not result.is_good] == []
    names = ["java", "jars", "spark", "python", "schemas", "registry", "topics"]
    names += ["topic ids", "database", "round trip"]
    assert [result.name for result in found] == names
    assert found[7].detail == "of 1 topic"
    assert found[4].detail == "orders json, columns 2; payments avro, columns 1"
    assert found[5].detail.endswith(" has JSON, PROTOBUF, AVRO")

    ill = replace(
        well,
        topics=(),
        database_url="postgres://nobody@127.0.0.1:1/none",
        schemas={"payments": replace(payments, schema=b"[]")},
    )
    found = [f for f in examine(ill, topic=topics.create()) if not f.is_good]
    names = ["schemas", "registry", "topics", "database"]
    assert [result.name for result in found] == names
    assert found[0].detail.startswith("schemas: payments: ")
    assert "registry_auth" in found[1].remedy
    assert "cannot be reached" in found[3].detail
    assert "DATABASE_URL" in found[3].remedy
    jks = {"security.protocol": "SSL", "ssl.truststore.location": "trust.jks"}
    with pytest.raises(ConfigurationError, match=r"ssl\.truststore"):
        _ask_for_ids(spark, replace(well, kafka={**well.kafka, **jks}))
    ill = replace(well, table="nowhere")
    (result,) = (f for f in examine(ill, topic=topics.create()) if f.name == "database")
    assert '"nowhere_archive" does not exist' in result.detail


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"laek": "x"}, "laek: there is no such setting. Did you mean 'lake'?"),
        ({"lake": "x", "batch_files": "8"}, "batch_files: a str is not of type int."),
        ({"lake": "x", "batch_files": 0}, "batch_files: must be at least 1."),
        (
            {"lake": "x", "clusters": {"shop/0": "", "shop": ""}},
            "clusters: shop/0, shop must be one name followed by the id of each",
        ),
        (
            {"lake": "x", "kafka": {"bootstrap.servers": ["a:1", "b:1"]}},
            "kafka: 'bootstrap.servers' is a list",
        ),
        (
            {"lake": "x", "kafka": {"isolation.level": "read_uncommitted"}},
            "kafka: 'isolation.level' is reserved",
        ),
        (
            {"lake": "x", "topics": ["a"], "topic_pattern": "b"},
            "topic_pattern: set it or `topics`, not both.",
        ),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(values)
    assert str(caught.value).startswith(message)


def test_settings_come_from_the_environment() -> None:
    settings = build(
        read_environment(
            {
                "OUTBOX_PIPELINE_LAKE": "s3a://lake/",
                "OUTBOX_PIPELINE_TOPICS": "orders,payments",
                "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
                "OUTBOX_SOURCE": "shop",
            }
        )
    )
    assert settings.topics == ("orders", "payments")
    assert settings.kafka == {"bootstrap.servers": "kafka:9092"}
    assert settings.table_path("silver") == "s3a://lake/silver"
    assert settings.source == "shop"


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, "local"),
        ({"SPARK_REMOTE": "sc://spark:15002"}, "connect"),
        ({"PYSPARK_GATEWAY_PORT": "4711"}, "submit"),
    ],
)
def test_who_runs_spark_is_seen_in_the_environment(
    environment: dict[str, str], where: str
) -> None:
    assert run_mode(environment) == where
