"""
Help for the tests of projects that use the outbox.

- `plugin.py`: pytest fixtures, which pytest loads once the package is installed;
  `testcase.py`: the same for Django's test cases.
- `outbox_fixture.py`: what a test does with its outbox: assertions
  (`value_lookups.py`) over messages (`stashed_messages.py`), and `drain()`.
- `draining.py`: the real relay, between the rows that the test's connection sees
  (`visible_table.py`) and a Kafka in memory (`memory_kafka.py`).
- `consumer_runs.py`: runs a handler as `runconsumer` does.
- `leader_signals.py`: the signals of a harvester that leads.
- `faults.py`: wrappers that add faults to a real producer or outbox table.

Nothing at run time imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .consumer_runs import ConsumerRun, run_consumer
    from .leader_signals import Leader, lead
    from .memory_kafka import DeliveryFault, InMemoryKafka
    from .outbox_fixture import OutboxFixture
    from .stashed_messages import StashedMessage
    from .testcase import OutboxTestCase

__all__ = [
    "ConsumerRun",
    "DeliveryFault",
    "InMemoryKafka",
    "Leader",
    "OutboxFixture",
    "OutboxTestCase",
    "StashedMessage",
    "lead",
    "run_consumer",
]

_HOME: Final = {
    "ConsumerRun": "consumer_runs",
    "DeliveryFault": "memory_kafka",
    "InMemoryKafka": "memory_kafka",
    "Leader": "leader_signals",
    "OutboxFixture": "outbox_fixture",
    "OutboxTestCase": "testcase",
    "StashedMessage": "stashed_messages",
    "lead": "leader_signals",
    "run_consumer": "consumer_runs",
}
"""Imported at first use: models cannot load before Django's app registry."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
