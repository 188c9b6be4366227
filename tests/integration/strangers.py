"""Servers that are not Kafka, or not the listener that a client wants."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def answers_as_http(connection: socket.socket) -> None:
    """Refuse what is no request at once, as nginx does."""
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def hangs_up(connection: socket.socket) -> None:
    """Close the connection at the first request."""
    connection.recv(1024)


def speaks_tls(certificates: Path) -> Callable[[socket.socket], None]:
    """Answer a TLS handshake, and what is none with an alert, as OpenSSL does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "certificate.pem", certificates / "key.pem")

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(1024)

    return serve


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Give each connection to `serve`, then close it; yield `host:port`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
