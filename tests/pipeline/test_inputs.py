"""What people give to the pipeline: times, places, addresses, too little."""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from django.core.management import call_command

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline import session
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.audit import database_url
from django_outbox.pipeline.commands.shared_options import moment, require_writable
from django_outbox.pipeline.pipeline_settings import build, read_file


def test_an_age_before_the_year_1_is_named() -> None:
    with pytest.raises(ArgumentTypeError, match="'800000d' is too long ago"):
        moment("800000d")


@pytest.mark.parametrize(
    "lake", ["s3a://bucket/lake", "dbfs:/mnt/lake", "file:/srv/lake", "/srv/lake"]
)
def test_a_uri_stays_what_it_is(lake: str) -> None:
    assert build({"lake": lake}).lake == lake


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("db", "db:5432"),
        ("db:6432", "db:6432"),
        ("[::1]:6432", "[::1]:6432"),
        ("[::1]", "[::1]:5432"),
        ("h1,h2", "h1:5432,h2:5432"),
        ("h1,h2:6432", "h1:6432,h2:6432"),
        ("h1:5433,h2:5434", "h1:5433,h2:5434"),
        ("h1:5433,h2", "h1:5433,h2:5432"),
    ],
)
def test_each_host_of_a_database_has_its_port(hosts: str, expected: str) -> None:
    found = database_url.options(f"postgres://me:s3cr%2Fet@{hosts}/shop")
    assert found["url"] == f"jdbc:postgresql://{expected}/shop"
    assert found["password"] == "s3cr/et"


@pytest.mark.parametrize("password", ["s3cr/et", "s3cr#et", "s3cr?et", "s3cr[et"])
def test_a_password_that_is_not_encoded_is_told_and_not_shown(password: str) -> None:
    with pytest.raises(ConfigurationError, match="must be percent-encoded") as caught:
        database_url.options(f"postgres://me:{password}@db/shop")
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_counts_need_topics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any, all would be well."""
    monkeypatch.setenv("DATABASE_URL", "postgres://me@db/shop")
    monkeypatch.setenv("OUTBOX_SOURCE", "shop")
    assert main(["counts", "--lake=/srv/lake"]) == 2
    assert "topics: set at least one" in capsys.readouterr().err


def test_properties_need_no_quotes(tmp_path: Path) -> None:
    """TOML makes tables of them, of which Kafka and Spark would know nothing."""
    file = tmp_path / "pipeline.toml"
    file.write_text(
        """
        [kafka]
        bootstrap.servers = "kafka:9093"
        security.protocol = "SASL_SSL"
        "sasl.mechanism" = "PLAIN"
        [spark]
        spark.sql.shuffle.partitions = "16"
        """
    )
    values = read_file(file)
    assert values["kafka"] == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }
    assert values["spark"] == {"spark.sql.shuffle.partitions": "16"}


@pytest.mark.parametrize(
    ("path", "problem"),
    [("none/a.json", "The folder of .* does not exist"), (".", "is a folder")],
)
def test_a_place_for_a_report_is_looked_at_before_the_work(
    path: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("OUTBOX_SOURCE", "shop")
    file = str(tmp_path / path)
    sending = ["backfill", "--table", "t", "--to", "t"]
    for command in (["audit"], sending):
        code = main([*command, "--lake", str(tmp_path / "lake"), "--json", file])
        assert code == 2
        assert re.search(problem, capsys.readouterr().err)
    require_writable(tmp_path / "a.json", None)


def test_archives_of_the_user_come_behind_the_pinned_ones() -> None:
    ours = {"spark.jars": "delta.jar", "spark.sql.extensions": "Delta", "a": "1"}
    chosen = {"spark.jars": "aws.jar", "a": "2", "b": "3"}
    assert session.joined(ours, chosen) == {
        "spark.jars": "delta.jar,aws.jar",
        "spark.sql.extensions": "Delta",
        "a": "2",
        "b": "3",
    }
    # On a cluster there are no pinned ones.
    assert session.joined({}, chosen) == chosen


def test_another_spark_of_this_machine_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = os.environ | {"SPARK_HOME": "/usr/local/spark"}
    monkeypatch.setattr(os, "environ", elsewhere)
    session._prepare_process()
    assert "SPARK_HOME" not in os.environ


@pytest.mark.django_db
def test_without_arguments_the_commands_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        call_command("outbox_pipeline")
    shown = capsys.readouterr().out
    assert "maintain" in shown
    assert "backfill" in shown
