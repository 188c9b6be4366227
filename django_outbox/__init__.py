"""
A transactional outbox for Django, PostgreSQL and Apache Kafka.

The public API. Names are imported at their first use: models cannot load before
Django's app registry, and parts of the package run without Django.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .conf import OutboxImproperlyConfigured
    from .consuming.handlers import consumer
    from .events import (
        Event,
        LeaderAcquired,
        LeaderFenced,
        LeaderRefreshed,
        LeaderRevoked,
        MeterRead,
        Ready,
        RecordParked,
        SeriesExpired,
        Stopped,
        TakeoverEnded,
        TakeoverStarted,
    )
    from .exceptions import (
        ConfigurationError,
        ConsumingError,
        DatabaseError,
        InvalidKey,
        InvalidMessage,
        KafkaError,
        NotInTransaction,
        OutboxError,
        SeriesClosed,
        SeriesError,
        SeriesUnknown,
        StashError,
        TableMissing,
    )
    from .harvester.harvester import Harvester
    from .idempotence.keyfield import IdempotencyKeysField, IdempotentModel
    from .idempotence.once import once
    from .message.incoming import ConsumedMessage
    from .message.middleware import Middleware
    from .message.outgoing import Message
    from .signals import (
        leader_acquired,
        leader_fenced,
        leader_refreshed,
        leader_revoked,
        meter_read,
        record_parked,
        series_expired,
        takeover_ended,
        takeover_started,
    )
    from .stashing.series import (
        OpenSeries,
        adiscard_series,
        aopen_series,
        arelease_series,
        discard_series,
        open_series,
        release_series,
    )
    from .stashing.writing import (
        astash,
        astash_delayed,
        astash_many,
        stash,
        stash_delayed,
        stash_many,
    )

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  # grouped by what they are for
    # Writing
    "Message",
    "astash",
    "astash_delayed",
    "astash_many",
    "stash",
    "stash_delayed",
    "stash_many",
    # Series: messages that are sent together
    "OpenSeries",
    "adiscard_series",
    "aopen_series",
    "arelease_series",
    "discard_series",
    "open_series",
    "release_series",
    # Harvesting
    "Harvester",
    # Consuming
    "ConsumedMessage",
    "IdempotencyKeysField",
    "IdempotentModel",
    "consumer",
    "once",
    # Around every message
    "Middleware",
    # Signals
    "leader_acquired",
    "leader_fenced",
    "leader_refreshed",
    "leader_revoked",
    "meter_read",
    "record_parked",
    "series_expired",
    "takeover_ended",
    "takeover_started",
    # Events: what a signal carries
    "Event",
    "LeaderAcquired",
    "LeaderFenced",
    "LeaderRefreshed",
    "LeaderRevoked",
    "MeterRead",
    "Ready",
    "RecordParked",
    "SeriesExpired",
    "Stopped",
    "TakeoverEnded",
    "TakeoverStarted",
    # Errors
    "ConfigurationError",
    "ConsumingError",
    "DatabaseError",
    "InvalidKey",
    "InvalidMessage",
    "KafkaError",
    "NotInTransaction",
    "OutboxError",
    "OutboxImproperlyConfigured",
    "SeriesClosed",
    "SeriesError",
    "SeriesUnknown",
    "StashError",
    "TableMissing",
    # About
    "__version__",
]

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "stashing.writing": (
        "astash",
        "astash_delayed",
        "astash_many",
        "stash",
        "stash_delayed",
        "stash_many",
    ),
    "stashing.series": (
        "OpenSeries",
        "adiscard_series",
        "aopen_series",
        "arelease_series",
        "discard_series",
        "open_series",
        "release_series",
    ),
    "message.outgoing": ("Message",),
    "harvester.harvester": ("Harvester",),
    "message.incoming": ("ConsumedMessage",),
    "message.middleware": ("Middleware",),
    "idempotence.once": ("once",),
    "idempotence.keyfield": ("IdempotencyKeysField", "IdempotentModel"),
    "consuming.handlers": ("consumer",),
    "signals": (
        "leader_acquired",
        "leader_fenced",
        "leader_refreshed",
        "leader_revoked",
        "meter_read",
        "record_parked",
        "series_expired",
        "takeover_ended",
        "takeover_started",
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
        "SeriesExpired",
        "Stopped",
        "TakeoverEnded",
        "TakeoverStarted",
    ),
    "exceptions": (
        "ConfigurationError",
        "ConsumingError",
        "DatabaseError",
        "InvalidKey",
        "InvalidMessage",
        "KafkaError",
        "NotInTransaction",
        "OutboxError",
        "SeriesClosed",
        "SeriesError",
        "SeriesUnknown",
        "StashError",
        "TableMissing",
    ),
    "conf": ("OutboxImproperlyConfigured",),
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    # Later accesses do not call this function.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
