"""What librdkafka's lines say of a broker, in words that help."""

from __future__ import annotations

import pytest

from django_outbox.kafka.causes import BrokerFailure, read_failure

BROKER = "kafka-1.example:9092"
CLOSED = "Disconnected: connection closed by peer: receive 0 after POLLIN"
HANDSHAKE = "SSL handshake failed"


def cause(reason: str, state: str = "CONNECT", after: int = 1) -> str:
    line = f"{BROKER}/bootstrap: {reason} (after {after}ms in state {state})"
    failure = read_failure(line)
    assert failure is not None
    assert failure.broker == BROKER
    return failure.cause


@pytest.mark.parametrize(
    ("reason", "state", "words"),
    [
        (
            "Connect to ipv4#127.0.0.1:9092 failed: Connection refused",
            "CONNECT",
            "connection refused: nothing listens there",
        ),
        (
            f"Failed to resolve '{BROKER}': Name or service not known",
            "CONNECT",
            "DNS: unknown host name: Name or service not known",
        ),
        (
            "Connect to ipv4#10.0.0.1:9092 failed: No route to host",
            "CONNECT",
            "Connect to ipv4#10.0.0.1:9092 failed: No route to host",
        ),
        (
            "Connection setup timed out in state CONNECT",
            "CONNECT",
            "no answer: a firewall",
        ),
        (
            "Connection setup timed out in state SSL_HANDSHAKE",
            "SSL_HANDSHAKE",
            "does not speak TLS",
        ),
        (
            "ApiVersionRequest failed: Local: Timed out: probably due to broker",
            "APIVERSION_QUERY",
            "connected, but no answer",
        ),
        (
            "Receive failed: Invalid response size 1213486160 (0..100000000): increase",
            "APIVERSION_QUERY",
            "this is not Kafka: an HTTP server answers",
        ),
        (
            "Receive failed: Invalid response size 1157627904 (0..100000000): increase",
            "APIVERSION_QUERY",
            "this is not Kafka: a PostgreSQL server answers",
        ),
        (
            "Receive failed: Invalid response size 352518912 (0..100000000): increase",
            "APIVERSION_QUERY",
            "a TLS listener answers: set security.protocol",
        ),
        (
            "Receive failed: Invalid response size -2 (0..100000000): increase",
            "APIVERSION_QUERY",
            "this is not Kafka: it answers with b'\\xff\\xff\\xff\\xfe'",
        ),
        (
            f"{HANDSHAKE}: Disconnected: SSL connection closed by peer: connecting to"
            " a PLAINTEXT broker listener?",
            "SSL_HANDSHAKE",
            "does not speak TLS",
        ),
        (
            f"{HANDSHAKE}: error:0A00010B:SSL routines::wrong version number",
            "SSL_HANDSHAKE",
            "does not speak TLS",
        ),
        (
            f"{HANDSHAKE}: error:0A000086:SSL routines::certificate verify failed:"
            " broker certificate could not be verified",
            "SSL_HANDSHAKE",
            "ssl.ca.location lacks its CA",
        ),
        (
            f"{HANDSHAKE}: error:0A000410:SSL routines::sslv3 alert handshake failure",
            "SSL_HANDSHAKE",
            "TLS: SSL handshake failed: sslv3 alert handshake failure",
        ),
        (
            "SASL authentication error: Authentication failed: Invalid username",
            "AUTH_REQ",
            "authentication: Authentication failed: Invalid username",
        ),
        (
            "SASL PLAIN mechanism handshake failed: Broker: Request not valid in"
            " current SASL state: broker's supported mechanisms: ",
            "AUTH_HANDSHAKE",
            "authentication: the listener does not support SASL",
        ),
        (
            "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism:"
            " broker's supported mechanisms: SCRAM-SHA-512",
            "AUTH_HANDSHAKE",
            "supported mechanisms: SCRAM-SHA-512",
        ),
        (
            # As MSK answers, with another id each time.
            "SASL authentication error: [6ad8e7d6-3c1d-4f6e-8c1e-2f2f2f2f2f2f]:"
            " Access denied",
            "AUTH_REQ",
            "authentication: Access denied",
        ),
        (CLOSED, "APIVERSION_QUERY", "the listener requires TLS"),
        (CLOSED, "UP", "the listener requires authentication"),
    ],
)
def test_a_line_becomes_a_cause(reason: str, state: str, words: str) -> None:
    assert words in cause(reason, state)
    assert "after" not in cause(reason, state).partition("closed")[0]


@pytest.mark.parametrize(
    "start",
    [
        f"{BROKER}/bootstrap",
        f"{BROKER}/12",
        f"sasl_ssl://{BROKER}/bootstrap",
        f"GroupCoordinator: {BROKER}",
        f"TxnCoordinator: ssl://{BROKER}",
        f"[thrd:sasl_plaintext://{BROKER}/bootstrap]: "
        f"sasl_plaintext://{BROKER}/bootstrap",
    ],
)
def test_a_broker_has_one_name_however_it_was_learned(start: str) -> None:
    refused = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused"
    repeated = "(after 0ms in state CONNECT, 7 identical error(s) suppressed)"
    expected = BrokerFailure(BROKER, "connection refused: nothing listens there", 2)
    assert read_failure(f"{start}: {refused} {repeated}") == expected
    assert read_failure(f"{start}: {refused}") == expected


@pytest.mark.parametrize(
    "line",
    [
        "1/1 brokers are down",
        "Local: Message timed out",
        "Subscribed topic not available: orders: Broker: Unknown topic or partition",
        # Brokers close what is idle.
        f"{BROKER}/1: {CLOSED} (after 600012ms in state UP)",
    ],
)
def test_other_lines_are_about_no_broker(line: str) -> None:
    assert read_failure(line) is None
