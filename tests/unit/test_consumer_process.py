"""Where the process of a consumer starts, and how it ends where it cannot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_outbox.consuming import handlers
from django_outbox.consuming.consumer_process import Plan, _starts, run
from django_outbox.consuming.handlers import find_group
from django_outbox.contrib.retry_topics import retried
from django_outbox.exceptions import ConfigurationError
from django_outbox.message.incoming import TopicPartition
from django_outbox.settings.options import OutboxSettings

from .consuming import group_of


@pytest.mark.parametrize(
    "wrong",
    [{"MIDDLEWARE": ["shop.middleware.Tenant"]}, {"SERIALIZER": "shop.serializers.x"}],
)
def test_a_setting_of_our_own_code_that_is_wrong_is_told_as_one(wrong: Any) -> None:
    """The command reports it in one line, with exit code 2."""
    options = OutboxSettings(KAFKA={"bootstrap.servers": "scripted:1"}, **wrong)
    group = group_of(print, transforms=True)
    plan = Plan(name="billing-1", group=group, alias="default")
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        run(plan, options, log_format="text", level=logging.CRITICAL)


class Partitions:
    """Starts each partition at 7."""

    def at_time(
        self, partitions: Sequence[TopicPartition], moment: datetime
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 7)


def test_a_start_at_a_moment_passes_nothing_that_waits_for_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages in a retry topic are still to be handled, however old they are."""
    monkeypatch.setattr(handlers, "_subscriptions", [])
    retried("orders", group="billing", delays=[timedelta(days=1)])(print)
    group = find_group("billing")
    assert "orders.billing.retry-1" in group.topics
    assigned = [(topic, 0) for topic in group.topics]
    partitions: Any = Partitions()
    now = datetime.now(UTC)
    assert _starts(group, ".dlt", partitions, now, assigned) == {("orders", 0): 7}
