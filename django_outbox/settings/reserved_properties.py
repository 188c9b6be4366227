"""librdkafka properties that are reserved by django-outbox, each with the reason."""

from __future__ import annotations

from typing import Final

RESERVED_PROPERTIES: Final = {
    "acks": "durability is part of the promise",
    "auto.offset.reset": "the leader topic is read from its end",
    "default.topic.config": "it could contain reserved properties",
    "delivery.report.only.error": "each acknowledgement counts",
    "delivery.timeout.ms": "set DELIVERY_TIMEOUT",
    "enable.auto.commit": "commits prove membership",
    "enable.auto.offset.store": "commits prove membership",
    "enable.idempotence": "order and duplicates depend on it",
    "group.id": "set LEADER_GROUP",
    "group.instance.id": "a static member leaves without telling the group",
    "group.protocol": "NELI needs the classic protocol",
    "heartbeat.interval.ms": "set HEARTBEAT_INTERVAL",
    "max.poll.interval.ms": "set MAX_POLL_INTERVAL",
    "message.timeout.ms": "set DELIVERY_TIMEOUT",
    "partition.assignment.strategy": "a joining process must not disturb the leader",
    "partitioner": "consumers rely on murmur2",
    "request.required.acks": "durability is part of the promise",
    "session.timeout.ms": "set SESSION_TIMEOUT",
    "transaction.timeout.ms": "set DELIVERY_TIMEOUT",
    "transactional.id": "the delivery mode decides",
}
"""Properties that a project may not set, each with the reason or the alternative."""

FREE_FOR_CONSUMERS: Final = (
    *("auto.offset.reset", "group.instance.id", "heartbeat.interval.ms"),
    *("max.poll.interval.ms", "session.timeout.ms"),
)
"""Reserved properties that CONSUMER_KAFKA may set: they matter to leaders only."""
