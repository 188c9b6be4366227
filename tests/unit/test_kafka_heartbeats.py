"""Heartbeats on the wire."""

from __future__ import annotations

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.kafka.heartbeats import decode, encode


def test_a_heartbeat_survives_the_wire() -> None:
    heartbeat = Heartbeat(node="höst-1", nonce="n", sent_at=12345.678901)

    assert decode(encode(heartbeat)) == heartbeat


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        b"",
        b"hello",
        b"\xff\xfe\x00",
        b"null",
        b"[1, 2]",
        b"{}",
        b'{"node": "a", "nonce": "b"}',
        b'{"node": 1, "nonce": "b", "sent_at": 1.0}',
        b'{"node": "a", "nonce": [], "sent_at": 1.0}',
        b'{"node": "a", "nonce": "b", "sent_at": "1.0"}',
        b'{"node": "a", "nonce": "b", "sent_at": true}',
        b'{"node": "a", "nonce": "b", "sent_at": NaN}',
        b'{"node": "a", "nonce": "b", "sent_at": Infinity}',
        b'{"node": "a", "nonce": "b", "sent_at": 1' + b"0" * 400 + b"}",
        b"[" * 4000,
        b'{"node": "' + b"a" * 5000 + b'", "nonce": "b", "sent_at": 1.0}',
    ],
)
def test_anything_else_is_no_heartbeat(garbage: bytes | None) -> None:
    assert decode(garbage) is None
