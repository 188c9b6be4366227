"""
A transactional outbox for Django, PostgreSQL and Apache Kafka.

The public API. Names are imported when they are first used: models cannot
load before Django's app registry, and parts of the package run where Django
is not installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .conf import OutboxImproperlyConfigured
    from .events import (
        Event,
        LeaderAcquired,
        LeaderFenced,
        LeaderRefreshed,
        LeaderRevoked,
        MeterRead,
        Ready,
        RecordParked,
        Stopped,
    )
    from .exceptions import (
        ConfigurationError,
        DatabaseError,
        InvalidMessage,
        KafkaError,
        NotInTransaction,
        OutboxError,
        StashError,
    )
    from .harvester import Harvester
    from .messages import Message
    from .signals import (
        leader_acquired,
        leader_fenced,
        leader_refreshed,
        leader_revoked,
        meter_read,
        record_parked,
    )
    from .stashing import astash, stash, stash_many

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  # grouped by what they are for
    # Writing
    "Message",
    "astash",
    "stash",
    "stash_many",
    # Harvesting
    "Harvester",
    # Signals
    "leader_acquired",
    "leader_fenced",
    "leader_refreshed",
    "leader_revoked",
    "meter_read",
    "record_parked",
    # Events: what a signal carries
    "Event",
    "LeaderAcquired",
    "LeaderFenced",
    "LeaderRefreshed",
    "LeaderRevoked",
    "MeterRead",
    "Ready",
    "RecordParked",
    "Stopped",
    # Errors
    "ConfigurationError",
    "DatabaseError",
    "InvalidMessage",
    "KafkaError",
    "NotInTransaction",
    "OutboxError",
    "OutboxImproperlyConfigured",
    "StashError",
    # About
    "__version__",
]

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "stashing": ("astash", "stash", "stash_many"),
    "messages": ("Message",),
    "harvester": ("Harvester",),
    "signals": (
        "leader_acquired",
        "leader_fenced",
        "leader_refreshed",
        "leader_revoked",
        "meter_read",
        "record_parked",
    ),
    "events": (
        "Event",
        "LeaderAcquired",
        "LeaderFenced",
        "LeaderRefreshed",
        "LeaderRevoked",
        "MeterRead",
        "Ready",
        "RecordParked",
        "Stopped",
    ),
    "exceptions": (
        "ConfigurationError",
        "DatabaseError",
        "InvalidMessage",
        "KafkaError",
        "NotInTransaction",
        "OutboxError",
        "StashError",
    ),
    "conf": ("OutboxImproperlyConfigured",),
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    # The next access finds it without this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
