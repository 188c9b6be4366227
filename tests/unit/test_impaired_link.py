"""The link of the fault matrix: what it holds, delays, cuts into pieces and resets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from django_outbox.devstack.service import free_port

from ..acceptance.chaos.impaired_link import ImpairedLink


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers with what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(65_536):
                    client.sendall(data)
            except OSError:
                pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


@pytest.fixture
def link(echo: int) -> Iterator[ImpairedLink]:
    with ImpairedLink(free_port(), ("127.0.0.1", echo)) as link:
        yield link


@pytest.fixture
def client(link: ImpairedLink) -> Iterator[socket.socket]:
    """A connection that has been answered once."""
    host, _, port = link.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        assert ask(client, b"hello") == b"hello"
        yield client


def ask(client: socket.socket, question: bytes) -> bytes:
    client.sendall(question)
    return read(client, len(question))


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


@pytest.mark.parametrize("held", [{}, {"requests": False}, {"answers": False}])
def test_what_is_held_arrives_when_the_link_is_healed(
    link: ImpairedLink, client: socket.socket, held: dict[str, bool]
) -> None:
    link.hold(**held)
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        ask(client, b"anybody?")
    link.heal()
    client.settimeout(30)
    assert read(client, 8) == b"anybody?"


def test_a_delay_is_one_of_each_way_and_not_of_each_chunk(
    link: ImpairedLink, client: socket.socket
) -> None:
    link.delay = 0.2
    began = time.monotonic()
    client.sendall(b"x" * 500_000)
    assert read(client, 500_000) == b"x" * 500_000
    assert 0.4 <= time.monotonic() - began < 1.2


def test_pieces_arrive_whole_and_in_order(
    link: ImpairedLink, client: socket.socket
) -> None:
    link.piece = 7
    question = bytes(range(256)) * 100
    assert ask(client, question) == question


def test_a_reset_ends_connections_and_lets_new_ones_through(
    link: ImpairedLink, client: socket.socket
) -> None:
    link.reset()
    with suppress(ConnectionError):
        assert client.recv(1) == b""
    host, _, port = link.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as another:
        assert ask(another, b"again") == b"again"
