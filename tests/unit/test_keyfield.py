"""What an entity remembers of its keys, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from pytest_django import Settings

from django_outbox import IdempotencyKeysField

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def entry(key: str, *, hours_ago: float = 0) -> list[str]:
    return [key, (NOW - timedelta(hours=hours_ago)).isoformat()]


def keys(field: IdempotencyKeysField, *entries: list[str]) -> list[str]:
    return [e[0] for e in field.with_entry(entries, entry("new"), NOW)]


def test_the_oldest_keys_go_when_there_are_too_many() -> None:
    field = IdempotencyKeysField(max_count=2)
    assert keys(field, entry("a"), entry("b"), entry("c")) == ["c", "new"]
    assert keys(field) == ["new"]


def test_keys_that_are_too_old_go() -> None:
    field = IdempotencyKeysField(max_count=None, max_age=timedelta(hours=1))
    assert keys(field, entry("a", hours_ago=2), entry("b", hours_ago=1)) == ["b", "new"]


@pytest.mark.parametrize("uses_time_zones", [False, True])
def test_keys_from_before_a_change_of_use_tz_age(
    settings: Settings, *, uses_time_zones: bool
) -> None:
    """Without USE_TZ, dates are of TIME_ZONE, whichever zone a request is in."""
    settings.TIME_ZONE = "Asia/Kolkata"
    field = IdempotencyKeysField(max_count=None, max_age=timedelta(hours=1))

    def local(moment: datetime) -> datetime:
        return moment.astimezone(ZoneInfo("Asia/Kolkata")).replace(tzinfo=None)

    entries, now = [entry("a", hours_ago=1.1), entry("b", hours_ago=0.9)], local(NOW)
    if uses_time_zones:
        entries = [
            [key, local(datetime.fromisoformat(date)).isoformat()]
            for key, date in entries
        ]
        now = NOW
    with timezone.override("Pacific/Auckland"):
        kept = field.with_entry(entries, entry("new"), now)
    assert [e[0] for e in kept] == ["b", "new"]


@pytest.mark.parametrize("wrong", [{"max_count": None}, {"max_count": 0}])
def test_a_memory_must_have_an_end_and_a_size(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_"):
        IdempotencyKeysField(**wrong)


def test_a_migration_makes_the_same_field() -> None:
    field = IdempotencyKeysField(max_count=7, max_age=timedelta(days=1))
    _name, path, args, kwargs = field.deconstruct()
    assert path == "django_outbox.idempotence.keyfield.IdempotencyKeysField"
    again = IdempotencyKeysField(*args, **kwargs)
    assert (again.max_count, again.max_age) == (7, timedelta(days=1))
    assert again.deconstruct() == field.deconstruct()
    assert "max_count" not in IdempotencyKeysField().deconstruct()[3]
