"""The rank order of a takeover as the database sees it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.db import connection

from django_outbox.postgres.takeover_sql import DELAY, ELIGIBLE, parameters
from django_outbox.relay.takeover import delay
from tests.unit.takeovers import CASES, Case

pytestmark = pytest.mark.django_db


def answers(fragment: str, case: Case) -> list[Any]:
    """What each cluster of a case gets for its record."""
    if math.isfinite(case.age):
        moment = "now() - make_interval(secs => %(age)s)"
    else:
        moment = "'-infinity'" if case.age > 0 else "'infinity'"
    found = []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox")
        cursor.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key, cluster_id, create_time)"
            f" VALUES ('t', 'k', %(origin)s, {moment})",
            {"origin": case.origin, "age": case.age},
        )
        for here in range(case.count):
            cursor.execute(
                f"SELECT {fragment} FROM outbox AS o",
                parameters(here, case.count, 10.0),
            )
            found += [value for (value,) in cursor.fetchall()]
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_case_of_the_table(case: Case) -> None:
    found = answers(ELIGIBLE, case)
    assert {here for here, is_eligible in enumerate(found) if is_eligible} == (
        case.relayed_by
    )


@pytest.mark.parametrize("origin", [-1, 0, 1, 2, 3, 4])
def test_the_delay_is_the_same_on_both_sides(origin: int) -> None:
    assert answers(DELAY, Case(3, origin, 0.0, set())) == [
        delay(origin, here=here, count=3, maximum_delay=10.0) for here in range(3)
    ]
