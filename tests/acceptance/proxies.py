"""A way to a server on which packets can get lost while TCP stays alive."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from typing import Final

from ..waiting import eventually

_CHUNK: Final = 65_536


class SilentProxy:
    """
    Forwards connections to a server until it goes silent.

    While it is silent it accepts connections and reads what comes, and nobody
    gets an answer: a middlebox, or a pooler, that has lost its server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.swallowed = 0
        """Bytes that were lost on the way to the server."""
        self._is_silent = False
        self._is_over = False
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> SilentProxy:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over = True
        # One more connection ends the wait of the thread.
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(10)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def go_silent(self) -> None:
        """Lose all that comes from now on; return when something was lost."""
        self._is_silent = True
        eventually(lambda: self.swallowed, what="a lost request")

    def _serve(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif self._selector.get_map().get(key.fd) is key:
                    # Else its other end has ended both a moment ago, and a new
                    # connection may have the number already.
                    assert isinstance(key.fileobj, socket.socket)
                    self._forward(key.fileobj, *key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        self._selector.register(client, selectors.EVENT_READ, (server, True))
        self._selector.register(server, selectors.EVENT_READ, (client, False))

    def _forward(
        self, source: socket.socket, target: socket.socket, is_asking: object
    ) -> None:
        try:
            data = source.recv(_CHUNK)
            if data and not self._is_silent:
                target.sendall(data)
        except OSError:
            data = b""
        if self._is_silent and is_asking:
            self.swallowed += len(data)
        if not data:
            for end in (source, target):
                self._selector.unregister(end)
                end.close()
