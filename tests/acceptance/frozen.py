"""A server that stands still: it keeps its connections, and answers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest


@contextmanager
def frozen(address: str) -> Iterator[None]:
    """Suspend the process that listens on a port of this machine (`host:port`)."""
    port = int(address.rpartition(":")[2])
    pids = {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    }
    if pids == {None}:
        pytest.skip("the server is in a container")
    (pid,) = pids
    server = psutil.Process(pid)
    server.suspend()
    try:
        yield
    finally:
        server.resume()
