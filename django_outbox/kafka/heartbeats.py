"""
The wire format of NELI's heartbeats: a small JSON object.

Anyone who may write to the leader topic may write anything, so messages that do
not parse are ignored.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final, TypeGuard

from confluent_kafka import Message

from ..election.ports import Heartbeat
from ..message.headers import MESSAGE_ID, texts
from .conversion import headers

MAX_HEARTBEAT_BYTES: Final = 4096
"""Longer messages are ignored."""

_OUTBOX: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SYSTEM: Final = re.compile(r"[0-9]{1,20}(/[0-9]{1,10}){2}")


def encode(heartbeat: Heartbeat) -> bytes:
    """Return a heartbeat as the value of a message."""
    fields = {
        "node": heartbeat.node,
        "nonce": heartbeat.nonce,
        "sent_at": heartbeat.sent_at,
    }
    if heartbeat.outbox:
        fields |= {
            "outbox": heartbeat.outbox,
            "system": heartbeat.system,
            "age": heartbeat.age,
        }
    return json.dumps(fields).encode()


def read(message: Message) -> Heartbeat | None:
    """Read a message of the leader topic; None if it is not a heartbeat."""
    heartbeat = decode(message.value())
    # A row of an outbox table can have any topic and value: not a heartbeat.
    if heartbeat is None or MESSAGE_ID in texts(headers(message)):
        return None
    return heartbeat


def decode(value: bytes | None) -> Heartbeat | None:
    """Read a message's value; None if it is not a heartbeat."""
    if value is None or len(value) > MAX_HEARTBEAT_BYTES:
        return None
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    node, nonce, sent_at = (fields.get(f) for f in ("node", "nonce", "sent_at"))
    if not isinstance(node, str) or not isinstance(nonce, str):
        return None
    if not _is_finite(sent_at):
        return None
    return Heartbeat(node=node, nonce=nonce, sent_at=sent_at, **_outbox(fields))


def _outbox(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a heartbeat's fields about its outbox; none if one is invalid."""
    outbox, system, age = (fields.get(f) for f in ("outbox", "system", "age"))
    is_outbox = isinstance(outbox, str) and _OUTBOX.fullmatch(outbox)
    is_system = isinstance(system, str) and _SYSTEM.fullmatch(system)
    if not (is_outbox and is_system and _is_finite(age)):
        return {}
    return {"outbox": outbox, "system": system, "age": age}


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, float) and isfinite(value)
