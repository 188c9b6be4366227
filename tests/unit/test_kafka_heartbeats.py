"""Heartbeats on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_outbox.election.ports import Heartbeat
from django_outbox.kafka.heartbeats import decode, encode


def test_a_heartbeat_survives_the_wire() -> None:
    heartbeat = Heartbeat(node="höst-1", nonce="n", sent_at=12345.678901)

    assert decode(encode(heartbeat)) == heartbeat
    assert b"outbox" not in encode(heartbeat)


OUTBOX = "3f2a9c1b-7d4e-4f00-8000-000000000001"


def test_it_says_which_outbox_is_led_where_and_since_when() -> None:
    heartbeat = Heartbeat(
        node="a",
        nonce="n",
        sent_at=1.5,
        outbox=OUTBOX,
        system="7711455915790997796/16385/2200",
        age=2.5,
    )

    assert decode(encode(heartbeat)) == heartbeat


@pytest.mark.parametrize(
    "forged",
    [
        {"outbox": "another"},
        {"outbox": OUTBOX + "\n"},
        {"outbox": 1},
        {"outbox": OUTBOX.upper()},
        {"system": ""},
        {"system": "1/2"},
        {"system": "1/2/3\nforged"},
        {"system": None},
        {"age": "old"},
        {"age": float("inf")},
        {"age": True},
    ],
)
def test_what_it_says_of_its_outbox_counts_as_a_whole_or_not(
    forged: dict[str, object],
) -> None:
    """It is shown in an error, and a writer may write anything."""
    right: dict[str, Any] = {"outbox": OUTBOX, "system": "1/2/3", "age": 1.0}
    plain: dict[str, Any] = {"node": "a", "nonce": "n", "sent_at": 1.5}

    assert decode(json.dumps(plain | right | forged).encode()) == Heartbeat(**plain)
    assert decode(json.dumps(plain | right).encode()) == Heartbeat(**plain, **right)


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
