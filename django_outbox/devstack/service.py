"""The interface of the devstack's services, whatever their source."""

from __future__ import annotations

import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from ..exceptions import OutboxError

START_LIMIT: Final = 300.0
"""
Seconds until a started server must answer. An idle machine needs a few; a hung
server and one on a slow disk look the same.
"""

_RANDOM: Final = random.SystemRandom()
"""pytest-randomly seeds Python's own generator alike in all processes of a run, which
would then choose the same ports."""

_PORTS: Final = range(20_000, 32_000)
"""
Below the range for outgoing connections. A client that keeps connecting to a
stopped server on a port of that range may get the same port as its source port,
connect to itself, and so block the port for the server.
"""


class DevstackError(OutboxError):
    """A service of the devstack cannot be provided."""


class Service(ABC):
    """One server, which fault tests can stop and kill."""

    def __init__(self, address: str, *, source: str) -> None:
        self.address = address
        """The database URL, or the bootstrap servers."""
        self.source = source
        """Source of the server: "environment", "docker" or "embedded"."""

    @abstractmethod
    def start(self) -> None:
        """Start the server, at the same address with its data; wait for an answer."""

    @abstractmethod
    def stop(self) -> None:
        """Shut the server down gracefully; its data stays."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the server without a shutdown."""

    @abstractmethod
    def close(self) -> None:
        """End the server and delete its data. May be called twice, and at any time."""


class ExternalService(Service):
    """A server from the environment, which the devstack does not manage."""

    def __init__(self, address: str, *, variable: str) -> None:
        super().__init__(address, source="environment")
        self._variable = variable

    def start(self) -> None:
        """Do nothing: the server is expected to run."""

    def stop(self) -> None:
        self._refuse("stop")

    def kill(self) -> None:
        self._refuse("kill")

    def close(self) -> None:
        """Do nothing: the server is not the devstack's."""

    def _refuse(self, verb: str) -> None:
        raise DevstackError(
            f"Cannot {verb} the server from {self._variable}: the devstack did not"
            " start it. Use devstack(sources=PRIVATE) for private servers."
        )


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    for port in _RANDOM.sample(_PORTS, k=200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DevstackError("No free port was found on 127.0.0.1.")


def wait_until(
    answers: Callable[[], bool],
    *,
    explain: Callable[[], str],
    is_alive: Callable[[], bool] = lambda: True,
    limit: float = START_LIMIT,
) -> None:
    """
    Wait until a server answers.

    Raises:
        DevstackError: the server ended or did not answer in time; the message ends
            with the result of `explain`.
    """
    deadline = time.monotonic() + limit
    while not answers():
        if not is_alive():
            raise DevstackError(f"The server ended during its start. {explain()}")
        if time.monotonic() > deadline:
            raise DevstackError(
                f"The server runs but did not answer within {limit:.0f} s. {explain()}"
            )
        time.sleep(0.05)
