"""Whether an outbox is the right cluster's, told from what the database says."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.clusters.cluster_ids import mismatches, statements
from django_outbox.message.record import Numbering
from django_outbox.postgres.outbox_schema import Schema

RIGHT = Numbering("1", "'1'::smallint", "outbox_id_seq", 3, 40)


def test_a_table_that_fits_is_left_alone() -> None:
    assert list(mismatches(RIGHT, cluster=1, count=3)) == []
    assert statements("outbox", RIGHT, cluster=1, count=3) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"default": "0"}, "cluster_id 0 by default, not 1"),
        ({"default": None}, "cluster_id None by default"),
        ({"staged_default": "0"}, "cluster_id 0 by default"),
        ({"default": "current_setting('x')::smallint"}, "by default, not 1"),
        ({"increment": 1}, "every id 1 after"),
        ({"last_id": 41}, "remainder 1"),
        ({"sequence": None, "increment": None, "last_id": None}, "not drawn from"),
    ],
)
def test_each_misfit_is_named(change: dict[str, Any], said: str) -> None:
    (misfit,) = mismatches(RIGHT._replace(**change), cluster=1, count=3)
    assert said in misfit


def test_a_table_without_a_staged_table_fits() -> None:
    alone = RIGHT._replace(staged_default=None)
    assert list(mismatches(alone, cluster=1, count=3)) == []


def test_only_what_is_wrong_is_changed() -> None:
    wrong = RIGHT._replace(staged_default="0")
    timeout, lock, change = statements("outbox", wrong, cluster=1, count=3)
    assert timeout.startswith("SET LOCAL lock_timeout")
    assert lock.startswith("LOCK TABLE ")
    assert (
        change == 'ALTER TABLE "outbox_staged" ALTER COLUMN cluster_id SET DEFAULT 1;'
    )


def test_every_name_has_the_schema_when_it_is_known() -> None:
    wrong = RIGHT._replace(default="0", staged_default="0", increment=1)
    schema = Schema("Sales 2", is_open=False)
    printed = "\n".join(statements("outbox", wrong, cluster=1, count=3, schema=schema))
    plain = "\n".join(statements("outbox", wrong, cluster=1, count=3))
    assert printed.replace('"Sales 2".', "") == plain
    assert printed.count('"Sales 2"."outbox') == plain.count('"outbox') == 8


def test_a_higher_beginning_is_a_change() -> None:
    assert statements("outbox", RIGHT, cluster=1, count=3, above=39) == []
    assert (
        "        40,\n" in statements("outbox", RIGHT, cluster=1, count=3, above=40)[-1]
    )
