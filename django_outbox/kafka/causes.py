"""
Why a broker is unavailable, explained for the person who configured it.

The source is a line of librdkafka's log, which begins with the broker. Some lines
only name a symptom: an impossible response size is the first bytes of another
protocol, and a listener of another kind just closes the connection.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_LINE: Final = re.compile(
    r"""
    (?:\[thrd:[^]]*\]:\s)?                                # the thread, in log lines
    (?:(?:GroupCoordinator|TxnCoordinator):\s)?
    (?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?
    (?P<broker>[^\s/]+:\d+)(?:/(?:bootstrap|-?\d+))?:\s
    (?P<reason>.*?)
    (?:\s\(after\s(?P<after>\d+)ms\ in\ state\ (?P<state>\w+)[^)]*\))?\s*
    """,
    re.VERBOSE | re.DOTALL,
)

TURNED_AWAY_WITHIN_MS: Final = 1000
"""Milliseconds: a connection that ends sooner was refused, not idle."""


class BrokerFailure(NamedTuple):
    """One connection that failed or was refused."""

    broker: str
    """`host:port`."""
    cause: str
    """What is wrong, and what to check."""
    confirmations: int = 1
    """How often in a row it must happen before it counts."""


def read_failure(line: str) -> BrokerFailure | None:
    """Read a line of librdkafka; None if it is not about an unavailable broker."""
    if (found := _LINE.fullmatch(line)) is None:
        return None
    broker, reason, state = found["broker"], found["reason"], found["state"] or ""
    if state == "UP" and int(found["after"]) >= TURNED_AWAY_WITHIN_MS:
        # Brokers close idle connections, and all of them at shutdown.
        return None
    if size := re.search(r"Invalid response size (-?\d+)", reason):
        return BrokerFailure(broker, _foreign(int(size[1])))
    for pattern, cause, confirmations in _CAUSES:
        if re.search(pattern, f"{reason} {state}"):
            return BrokerFailure(broker, cause.format(_short(reason)), confirmations)
    return BrokerFailure(broker, _short(reason), 2)


_PLAIN: Final = (
    "TLS: the listener does not speak TLS: set security.protocol to PLAINTEXT or "
    "SASL_PLAINTEXT, or use the port of a TLS listener; or this is not Kafka"
)

_CAUSES: Final = (
    # A host may have several addresses, and the next may answer.
    ("Connection refused", "connection refused: nothing listens there", 2),
    ("Failed to resolve", "DNS: unknown host name: {}", 1),
    ("setup timed out.* SSL_HANDSHAKE$", _PLAIN, 1),
    ("setup timed out", "no answer: a firewall or a wrong address", 1),
    (
        "ApiVersionRequest.*Timed out",
        "connected, but no answer: this may not be Kafka",
        1,
    ),
    (
        "certificate verify failed",
        "TLS: certificate not trusted: ssl.ca.location lacks its CA, or the "
        "certificate is for another host name",
        1,
    ),
    ("PLAINTEXT broker|wrong version number|SSL connection closed", _PLAIN, 1),
    ("SSL_HANDSHAKE$", "TLS: {}", 1),
    (
        "not valid in current SASL state",
        "authentication: the listener does not support SASL: set security.protocol "
        "to PLAINTEXT or SSL, or use the port of a SASL listener",
        1,
    ),
    ("SASL| AUTH", "authentication: {}", 1),
    (
        "Disconnected.* APIVERSION_QUERY$",
        "connection closed at the first request: the listener requires TLS (set "
        "security.protocol), or this is not Kafka",
        2,
    ),
    (
        "Disconnected.* UP$",
        "connection closed after each request: the listener requires "
        "authentication (set security.protocol and sasl.mechanisms)",
        3,
    ),
)
"""Pattern for librdkafka's text and the connection's state, cause, and how often in a
row it must happen."""


def _foreign(size: int) -> str:
    """Name the server by the four bytes that librdkafka read as a size."""
    start = size.to_bytes(4, "big", signed=size < 0)
    if start == b"HTTP":
        return "this is not Kafka: an HTTP server answers"
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        return "a TLS listener answers: set security.protocol to SSL or SASL_SSL"
    if start[:1] == b"E":
        return "this is not Kafka: a PostgreSQL server answers"
    return f"this is not Kafka: it answers with {start!r}"


def _short(reason: str) -> str:
    """Remove details: OpenSSL error codes, ids of requests and the host name."""
    reason = re.sub(r"error:[0-9A-F]+:[^:]*::?", "", reason)
    # MSK's access control gives each refusal an id: the cause is the same.
    reason = re.sub(r"\[[0-9a-f-]{36}\]:?\s*", "", reason)
    reason = reason.removeprefix("SASL authentication error: ")
    if named := re.fullmatch(r"Failed to resolve '[^']*': (.*)", reason):
        reason = named[1]
    return " ".join(reason.split()).rstrip(" .:")
