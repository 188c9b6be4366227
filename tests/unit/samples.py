"""Values that unit tests need in many variations."""

from __future__ import annotations

from typing import Any, Final

from django_outbox.events import MeterRead
from django_outbox.message.record import Record
from django_outbox.message.retry import RetryPolicy
from django_outbox.relay.settings import RelaySettings

READING = MeterRead(
    name="a",
    rate=900.0,
    purged=1_000,
    failed=2,
    in_flight=7,
    blocked_keys=3,
    backlog=5_000,
    is_backlog_capped=False,
    oldest_age=300.0,
    receiver_errors=0,
)

BLOCK: Final = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=0)
"""Poison blocks its key."""

PARK: Final = RetryPolicy(backoff=1.0, backoff_max=8.0, attempts=2)
"""Poison is parked after its second failure."""


def relay_settings(**changes: Any) -> RelaySettings:
    """Make settings in which the test chooses what it is about."""
    values: dict[str, Any] = {
        "page_rows": 100,
        "page_bytes": 500_000,
        "delivery_timeout": 5.0,
        "busy_interval": 0.01,
        "idle_interval": 0.1,
        "retry": BLOCK,
    }
    return RelaySettings(**(values | changes))


def record(
    id: int, key: str = "k", *, topic: str = "t", attempts: int = 0, value: str = "v"
) -> Record:
    """Make a record that differs in what the test is about."""
    return Record(
        id=id,
        topic=topic,
        key=key,
        value=value,
        header_keys=[],
        header_values=[],
        partition=None,
        message_id=f"00000000-0000-4000-8000-{id:012d}",
        created_at="1700000000000000",
        cluster_id=0,
        attempts=attempts,
    )


def with_headers(id: int, *, size: int) -> Record:
    """Make a record whose headers are large, on a key of its own."""
    names = ["a", "n" * (size // 2)]
    texts: list[str | None] = ["v" * (size - size // 2), ""]
    return record(id, f"key-{id}")._replace(header_keys=names, header_values=texts)
