"""What people give to the pipeline: times, places, addresses, too little."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.__main__ import main
from django_outbox.pipeline.audit import database_url
from django_outbox.pipeline.commands.shared_options import moment
from django_outbox.pipeline.pipeline_settings import build


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
