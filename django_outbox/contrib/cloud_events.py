"""The headers of a CloudEvent, version 1.0, in Kafka's binary mode."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime


def event_headers(
    event_type: str, source: str, *, content_type: str = "application/json"
) -> list[tuple[str, str]]:
    """
    Return the headers of a new event, for `stash()`.

        stash("orders", key="17", value=..., headers=event_headers("order.placed", "/"))

    Source: the Kafka protocol binding of CloudEvents 1.0.2, section 3.2.

    Args:
        event_type: What has happened, such as `com.example.order.placed`.
        source: URI of what it has happened in, such as `/shop`.
        content_type: Media type of the value.
    """
    return [
        ("ce_specversion", "1.0"),
        ("ce_id", str(uuid.uuid4())),
        ("ce_type", event_type),
        ("ce_source", source),
        ("ce_time", datetime.now(UTC).isoformat()),
        ("content-type", content_type),
    ]
