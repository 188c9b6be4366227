"""
The wire format of NELI's heartbeats: a small JSON object.

Anyone who may write to the leader topic may write anything: what does not
parse is no heartbeat, and is passed over in silence.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Final

from ..election.ports import Heartbeat

LONGEST: Final = 4096
"""Bytes: a longer message is nobody's heartbeat."""


def encode(heartbeat: Heartbeat) -> bytes:
    """Write a heartbeat as the value of a message."""
    fields = {
        "node": heartbeat.node,
        "nonce": heartbeat.nonce,
        "sent_at": heartbeat.sent_at,
    }
    return json.dumps(fields).encode()


def decode(value: bytes | None) -> Heartbeat | None:
    """Read a message's value; None when it is no heartbeat."""
    if value is None or len(value) > LONGEST:
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
    if not isinstance(sent_at, float) or not isfinite(sent_at):
        return None
    return Heartbeat(node=node, nonce=nonce, sent_at=sent_at)
