"""TLS in front of a PostgreSQL that has none, as a pooler or a proxy offers it."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from django_outbox.devstack.service import free_port

SSL_REQUEST: Final = bytes.fromhex("0000000804d2162f")
"""What a client of PostgreSQL sends first when it wants TLS."""

PIECE: Final = 65536
"""Bytes that are read at once."""


class TlsTerminator:
    """
    Takes encrypted connections only, and hands what they carry to a server.

    Args:
        server: its host and port.
        certificates: a folder with `key.pem` and `certificate.pem`.
    """

    def __init__(self, server: tuple[str, int], certificates: Path) -> None:
        self._server = server
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(
            certificates / "certificate.pem", certificates / "key.pem"
        )
        self.port = free_port()
        self._listener = socket.create_server(("127.0.0.1", self.port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # The listener was closed.
            while True:
                client, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(client,), daemon=True
                ).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            if client.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
                return
            client.sendall(b"S")
            with (
                self._context.wrap_socket(client, server_side=True) as encrypted,
                socket.create_connection(self._server) as server,
            ):
                back = threading.Thread(
                    target=_forward, args=(server, encrypted), daemon=True
                )
                back.start()
                _forward(encrypted, server)
                back.join()


def _forward(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes, until one of both ends."""
    with suppress(OSError):
        while data := source.recv(PIECE):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
