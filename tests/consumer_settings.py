"""The tests' settings for processes of `runconsumer`: quick, and as they are told."""

from __future__ import annotations

from .settings import *  # noqa: F403
from .settings import DJANGO_OUTBOX, env

DJANGO_OUTBOX = DJANGO_OUTBOX | {
    "SESSION_TIMEOUT": 1.0,
    "HEARTBEAT_TIMEOUT": 0.4,
    "HEARTBEAT_INTERVAL": 0.1,
    "METER_INTERVAL": 0.5,
    "RETRY_BACKOFF": 0.05,
    "CONSUMER_ATTEMPTS": 2,
    "CONSUMER_KAFKA": {
        "max.poll.interval.ms": env.int("TESTAPP_POLL_INTERVAL", default=300_000),
    },
    "OFFSETS": env.str("TESTAPP_OFFSETS", default="kafka"),
    "CONSUMER_METRICS_ADDRESS": env.str("TESTAPP_METRICS_ADDRESS", default=""),
}
