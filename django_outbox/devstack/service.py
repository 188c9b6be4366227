"""What every service of the devstack can do, wherever it came from."""

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
Seconds until a started server must answer. It takes a few on a quiet machine;
a server that idles and one that starts on a slow disk cannot be told apart.
"""

_PORTS: Final = range(20_000, 32_000)
"""
Below what systems give to outgoing connections. A client that keeps trying to
reach a stopped server on a port from that range may be given the very port as
its own, connect to itself and keep the server from coming back.
"""


class DevstackError(OutboxError):
    """A service of the devstack cannot be provided."""


class Service(ABC):
    """One server: running when you get it, and for fault tests at your mercy."""

    def __init__(self, address: str, *, source: str) -> None:
        self.address = address
        """The database URL, or the bootstrap servers."""
        self.source = source
        """Where it came from: "environment", "docker" or "embedded"."""

    @abstractmethod
    def start(self) -> None:
        """Start it, with its data and at its old address; return when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Shut it down in good order; its data stays."""

    @abstractmethod
    def kill(self) -> None:
        """Crash it, as a power cut would."""

    @abstractmethod
    def close(self) -> None:
        """End it for good, with its data. May be called twice, and at any time."""

    def restart(self) -> None:
        """Stop it in good order and start it."""
        self.stop()
        self.start()


class ExternalService(Service):
    """A server that the environment names: others own it."""

    def __init__(self, address: str, *, variable: str) -> None:
        super().__init__(address, source="environment")
        self._variable = variable

    def start(self) -> None:
        """Take it as it is."""

    def stop(self) -> None:
        self._refuse("stop")

    def kill(self) -> None:
        self._refuse("kill")

    def close(self) -> None:
        """Leave it alone."""

    def _refuse(self, verb: str) -> None:
        raise DevstackError(
            f"The server that {self._variable} names is not the devstack's to"
            f" {verb}. Ask for one of your own: devstack(sources=PRIVATE)."
        )


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    for port in random.sample(_PORTS, k=200):
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
        DevstackError: it died or stayed silent; with what `explain` has to say.
    """
    deadline = time.monotonic() + limit
    while not answers():
        if not is_alive():
            raise DevstackError(f"The server ended while it started. {explain()}")
        if time.monotonic() > deadline:
            raise DevstackError(
                f"No answer within {limit:.0f} s, although its process runs."
                f" {explain()}"
            )
        time.sleep(0.05)
