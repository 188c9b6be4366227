"""`manage.py outbox status` of one of several clusters."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from pytest_django import Settings

from django_outbox.models import OutboxRecord

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cluster(settings: Settings) -> None:
    """Make this process one of cluster 1's, of three."""
    settings.DJANGO_OUTBOX = {
        **settings.DJANGO_OUTBOX,
        "CLUSTER_ID": 1,
        "CLUSTERS_COUNT": 3,
        "MAXIMUM_DELAY": 60.0,
    }


def write(origin: int, *ages: float) -> None:
    for age in ages:
        OutboxRecord.objects.create(
            kafka_topic="t",
            kafka_key="k",
            cluster_id=origin,
            create_time=Now() - timedelta(seconds=age),
        )


def status(*arguments: str) -> str:
    out = StringIO()
    call_command("outbox", "status", *arguments, stdout=out)
    return out.getvalue()


def reported() -> dict[int, dict[str, Any]]:
    clusters = json.loads(status("--json"))["clusters"]
    assert (clusters["here"], clusters["count"]) == (1, 3)
    assert clusters["maximum_delay"] == 60.0
    return {origin.pop("origin"): origin for origin in clusters["origins"]}


def test_who_takes_over_when_for_people() -> None:
    write(0, 5.5, 20.5)
    write(1, 1.5)
    lines = status().splitlines()
    begin = lines.index("cluster  1 of 3")
    assert lines[begin + 1].startswith("  of 0        2, oldest 20.")
    assert "1 (this cluster) takes over in 39." in lines[begin + 1]
    assert "2 takes over in 99." in lines[begin + 1]
    assert lines[begin + 2].startswith("  of 1 (own)  1, oldest 1.")
    assert "2 takes over in 58." in lines[begin + 2]
    assert lines[begin + 3] == "  of 2        nothing"


def test_who_takes_over_when_for_machines() -> None:
    write(0, 70.0, 1.0)
    write(2, 30.0)
    found = reported()
    assert found[1] == {"records": 0, "oldest_age": None, "takeovers": []}
    assert found[0]["records"] == 2
    assert 70.0 <= found[0]["oldest_age"] < 75.0
    first, second = found[0]["takeovers"]
    # The first ought to be at work already.
    assert first == {"cluster": 1, "after": 60.0, "left": 0.0}
    assert (second["cluster"], second["after"]) == (2, 120.0)
    assert 45.0 < second["left"] <= 50.0
    # For the last in the ring the next is the first.
    assert [turn["cluster"] for turn in found[2]["takeovers"]] == [0, 1]
    assert 25.0 < found[2]["takeovers"][0]["left"] <= 30.0


def test_a_cluster_that_the_settings_do_not_know() -> None:
    write(4, 10.0)
    found = reported()
    assert [turn["cluster"] for turn in found[4]["takeovers"]] == [1, 2, 0]
    assert [turn["after"] for turn in found[4]["takeovers"]] == [60.0, 120.0, 180.0]


def test_rows_without_a_time_wait_for_their_own_cluster() -> None:
    """The general backlog cannot tell their age, either: 0."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, cluster_id, create_time)"
            " SELECT 't', 'k', origin, 'infinity' FROM unnest(ARRAY[2, 5]) AS origin"
        )
    found = reported()
    assert found[2] == {"records": 1, "oldest_age": None, "takeovers": []}
    assert found[5]["takeovers"] == [{"cluster": 2, "after": 0.0, "left": 0.0}]
