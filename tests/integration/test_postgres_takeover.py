"""The rank order of a takeover as the database sees it."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, closing
from typing import Any

import pytest
from django.db import connection

from django_outbox.message.record import Sweep
from django_outbox.postgres.connection import Database
from django_outbox.postgres.takeover_sql import DELAY, IS_DUE, Scope, parameters
from django_outbox.postgres.unmarked_table import UnmarkedOutbox
from django_outbox.relay.takeover import delay
from tests.takeover_rule import Aged
from tests.unit.takeovers import CASES, IN_ORDER, Case

pytestmark = pytest.mark.django_db


def write(*records: Aged) -> None:
    """Let the table have these rows only."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox")
        for id, origin, (topic, key), age in records:
            moment = "now() - make_interval(secs => %s)"
            if not math.isfinite(age):
                moment = "CASE WHEN %s > 0 THEN '-infinity' ELSE 'infinity' END"
            cursor.execute(
                "INSERT INTO outbox (create_time, id, cluster_id, kafka_topic,"
                f" kafka_key) VALUES (({moment})::timestamptz, %s, %s, %s, %s)",
                [age, id, origin, topic, key],
            )


def answers(fragment: str, case: Case) -> list[Any]:
    """What each cluster of a case gets for its record."""
    write(Aged(1, case.origin, ("t", "k"), case.age))
    found = []
    with connection.cursor() as cursor:
        for this_cluster in range(case.count):
            cursor.execute(
                f"SELECT {fragment} FROM outbox AS o",
                parameters(this_cluster, case.count, 10.0),
            )
            found += [value for (value,) in cursor.fetchall()]
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case_of_the_table(case: Case) -> None:
    found = answers(IS_DUE, case)
    assert {here for here, is_eligible in enumerate(found) if is_eligible} == (
        case.relayed_by
    )


@pytest.mark.parametrize("origin", [-1, 0, 1, 2, 3, 4])
def test_the_delay_is_the_same_on_both_sides(origin: int) -> None:
    assert answers(DELAY, Case(3, origin, 0.0, set())) == [
        delay(origin, this_cluster=this_cluster, count=3, maximum_delay=10.0)
        for this_cluster in range(3)
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("records", "found"), IN_ORDER)
def test_a_record_waits_for_all_earlier_ones_of_its_key(
    records: list[Aged], found: list[int], database_url: str
) -> None:
    write(*records)
    assert swept(database_url) == found
    # The exactly-once relay reads each other cluster by itself.
    assert sorted(read_of(database_url, 0) + read_of(database_url, 2)) == [
        id for id in found if origin_of(id, records) in (0, 2)
    ]


@pytest.mark.django_db(transaction=True)
def test_topics_of_other_clusters_do_not_count(database_url: str) -> None:
    write(
        Aged(1, 1, ("mine", "k"), 1.0),
        Aged(2, 0, ("other", "k"), 1.0),
        Aged(3, 2, ("other", "k"), 99.0),
    )
    with outbox(database_url) as table:
        assert table.topics(limit=5) == ((("mine", 1),), 0)
        assert table.backlog().records == 1


def origin_of(id: int, records: list[Aged]) -> int:
    return next(record.origin for record in records if record.id == id)


def swept(url: str) -> list[int]:
    """What a repair scan of cluster 1 finds."""
    with outbox(url) as table:
        records = table.sweep(1000, Sweep(frozenset(), ()), limit=100)
    return [record.id for record in records]


def read_of(url: str, source_cluster: int) -> list[int]:
    """What cluster 1 reads of another cluster."""
    with outbox(url, source_cluster) as table:
        return [record.id for record in table.page(0, [], limit=100)]


def outbox(
    url: str, source_cluster: int | None = None
) -> AbstractContextManager[UnmarkedOutbox]:
    scope = Scope(
        this_cluster=1, clusters=3, maximum_delay=10.0, source_cluster=source_cluster
    )
    return closing(UnmarkedOutbox(Database({"conninfo": url}), scope=scope))
