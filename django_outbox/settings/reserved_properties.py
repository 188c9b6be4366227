"""
The librdkafka properties that belong to django-outbox, each with the reason.

`settings/rules.py` refuses them in the settings, `standalone/translation.py` in a file.
"""

from __future__ import annotations

from typing import Final

OWNED_KAFKA_KEYS: Final = {
    "acks": "durability is part of the promise",
    "auto.offset.reset": "the leader topic is read from its end",
    "default.topic.config": "it could hide the keys of this list",
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
"""librdkafka properties that the project may not set, each with the reason."""

FREE_FOR_CONSUMERS: Final = (
    *("auto.offset.reset", "group.instance.id", "heartbeat.interval.ms"),
    *("max.poll.interval.ms", "session.timeout.ms"),
)
"""Of those, the ones that CONSUMER_KAFKA may set: they matter to the leader only."""
