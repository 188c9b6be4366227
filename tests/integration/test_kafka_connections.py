"""The log names the address and the cause of every mistake in an address."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from django_outbox.devstack import DevstackError, Stack
from django_outbox.devstack.service import free_port
from django_outbox.exceptions import KafkaUnavailable
from django_outbox.kafka.config import admin_config
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.kafka.topics import ensure_topic, leader_topic
from django_outbox.kafka.transactions import KafkaTransactions
from django_outbox.settings.options import OutboxSettings
from tests.contracts.clusters import Reports
from tests.machine import do_without
from tests.unit.samples import record
from tests.waiting import eventually

from .harvesting import poll_until
from .securedkafka import PASSWORD, USER, SecuredKafka, make_certificate
from .strangers import answers_as_http, hangs_up, listening, speaks_tls

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For this machine, and signed by nobody."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "127.0.0.1")
    return folder


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[SecuredKafka]:
    """A broker that wants TLS or a password."""
    try:
        kafka = SecuredKafka(certificates)
        kafka.start()
    except DevstackError as error:
        do_without(str(error))
    yield kafka
    kafka.close()


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "django_outbox")
    return caplog


def options_for(servers: str, **properties: Any) -> OutboxSettings:
    return OutboxSettings(
        LEADER_TOPIC="strangers",
        SESSION_TIMEOUT=1.0,
        HEARTBEAT_TIMEOUT=0.4,
        DELIVERY_TIMEOUT=1.0,
        KAFKA={"bootstrap.servers": servers, **properties},
    )


def complaint(log: pytest.LogCaptureFixture, servers: str, **properties: Any) -> str:
    """Consume from there until a warning comes; return it."""
    options = options_for(servers, **properties)
    source = KafkaSource(options, group="strangers", topics=["orders"])
    try:
        poll_until(lambda: _lines(log, "kafka_lost"), source)
    finally:
        source.close()
    lines = _lines(log, "kafka_lost")
    assert lines[0].startswith(f"Kafka at {servers} unavailable: ")
    assert lines[0].endswith("; retrying")
    return lines[0]


def refusal(servers: str, **properties: Any) -> str:
    """Look for the leader topic there; return the error's text."""
    options = options_for(servers, **properties)
    with pytest.raises(KafkaUnavailable) as caught:
        ensure_topic(admin_config(options), leader_topic(options))
    return str(caught.value)


def _lines(log: pytest.LogCaptureFixture, action: str) -> list[str]:
    return [
        entry.getMessage()
        for entry in log.records
        if vars(entry).get("action") == action
    ]


def test_nothing_listens(log: pytest.LogCaptureFixture) -> None:
    servers = f"127.0.0.1:{free_port()}"
    words = f"Kafka at {servers} unavailable: connection refused"
    assert words in refusal(servers)
    assert words in complaint(log, servers)
    assert len(_lines(log, "kafka_lost")) == 1


def test_a_name_that_dns_does_not_know(log: pytest.LogCaptureFixture) -> None:
    servers = "kafka.does-not-exist.invalid:9092"
    assert f"Kafka at {servers} unavailable: DNS" in refusal(servers)
    assert "DNS: unknown host name" in complaint(log, servers)


def test_an_http_server(log: pytest.LogCaptureFixture) -> None:
    with listening(answers_as_http) as servers:
        assert "an HTTP server answers" in refusal(servers)
        assert "this is not Kafka: an HTTP server" in complaint(log, servers)
        assert "TLS: the listener" in refusal(servers, **{"security.protocol": "SSL"})


def test_a_server_that_hangs_up(log: pytest.LogCaptureFixture) -> None:
    with listening(hangs_up) as servers:
        words = "connection closed at the first request"
        assert words in refusal(servers)
        assert words in complaint(log, servers)


def test_the_port_of_postgres(services: Stack, log: pytest.LogCaptureFixture) -> None:
    url = urlsplit(services.database_url)
    servers = f"{url.hostname}:{url.port}"
    assert "a PostgreSQL server answers" in refusal(servers)
    assert "this is not Kafka: a PostgreSQL" in complaint(log, servers)


def test_tls_where_the_listener_knows_none(
    bootstrap_servers: str, log: pytest.LogCaptureFixture
) -> None:
    tls = {"security.protocol": "SSL"}
    words = "TLS: the listener does not speak TLS"
    assert words in refusal(bootstrap_servers, **tls)
    assert words in complaint(log, bootstrap_servers, **tls)


def test_a_certificate_that_nobody_has_signed(
    certificates: Path, log: pytest.LogCaptureFixture
) -> None:
    with listening(speaks_tls(certificates)) as servers:
        tls = {"security.protocol": "SSL"}
        assert "TLS: certificate not trusted" in refusal(servers, **tls)
        assert "ssl.ca.location" in complaint(log, servers, **tls)


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    make_certificate(tmp_path, "kafka.example")
    with listening(speaks_tls(tmp_path)) as servers:
        words = refusal(
            servers,
            **{
                "security.protocol": "SSL",
                "ssl.ca.location": str(tmp_path / "certificate.pem"),
            },
        )
    assert "the certificate is for another host name" in words


def test_plaintext_where_the_listener_wants_tls(
    secured: SecuredKafka, certificates: Path, log: pytest.LogCaptureFixture
) -> None:
    assert "the listener requires TLS" in refusal(secured.ssl)
    assert "set security.protocol" in complaint(log, secured.ssl)
    options = options_for(
        secured.ssl,
        **{
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates / "certificate.pem"),
        },
    )
    ensure_topic(admin_config(options), leader_topic(options))


def test_a_wrong_password(secured: SecuredKafka, log: pytest.LogCaptureFixture) -> None:
    wrong = {**SASL, "sasl.password": "wrong-password"}
    words = "authentication: Authentication failed: Invalid username or password"
    assert words in refusal(secured.sasl, **wrong)
    log.set_level(logging.DEBUG, "django_outbox")
    assert words in complaint(log, secured.sasl, **wrong)
    assert "wrong-password" not in log.text
    options = options_for(secured.sasl, **SASL)
    ensure_topic(admin_config(options), leader_topic(options))


def test_a_mechanism_that_the_listener_does_not_know(secured: SecuredKafka) -> None:
    words = refusal(secured.sasl, **{**SASL, "sasl.mechanisms": "SCRAM-SHA-256"})
    assert "authentication: " in words
    assert "supported mechanisms: PLAIN" in words


def test_no_password_where_the_listener_wants_one(
    secured: SecuredKafka, log: pytest.LogCaptureFixture
) -> None:
    assert "the listener requires authentication" in complaint(log, secured.sasl)


def test_a_password_where_the_listener_wants_none(bootstrap_servers: str) -> None:
    assert "the listener does not support SASL" in refusal(bootstrap_servers, **SASL)


def test_every_client_reports_the_cause(log: pytest.LogCaptureFixture) -> None:
    """The producer of records meets it on its way, transactions when they open."""
    servers = f"127.0.0.1:{free_port()}"
    options = options_for(servers)
    words = f"Kafka at {servers} unavailable: connection refused"
    transactions = KafkaTransactions(options, fencing_token=None, origin=0)
    with pytest.raises(KafkaUnavailable, match="connection refused"):
        transactions.open()
    assert words in _lines(log, "kafka_lost")[0]

    servers = f"127.0.0.1:{free_port()}"
    producer = KafkaProducer(options_for(servers))
    Reports().send(producer, record(1))
    eventually(
        lambda: len(_lines(log, "kafka_lost")) == 2,
        meanwhile=lambda: producer.poll(0.1),
    )
    assert servers in _lines(log, "kafka_lost")[1]


def test_a_consumer_without_messages_tells_that_kafka_is_back(
    bootstrap_servers: str, topic: str, log: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    servers = f"127.0.0.1:{port}"
    source = KafkaSource(options_for(servers), group=f"g-{topic}", topics=[topic])
    try:
        poll_until(lambda: _lines(log, "kafka_lost"), source)
        with forwarding(port, bootstrap_servers):
            poll_until(lambda: _lines(log, "kafka_found"), source)
    finally:
        source.close()
    assert _lines(log, "kafka_found") == [f"Kafka at {servers} recovered"]


@contextmanager
def forwarding(port: int, to: str) -> Iterator[None]:
    """Let what connects to this port speak to another server."""
    host, _, target = to.rpartition(":")

    def pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def carry(near: socket.socket) -> None:
        with near, socket.create_connection((host, int(target))) as far:
            back = threading.Thread(target=pass_on, args=(far, near))
            back.start()
            pass_on(near, far)
            back.join()

    threads: list[threading.Thread] = []
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", port)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    near, _ = server.accept()
                    ends.append(near)
                    threads.append(threading.Thread(target=carry, args=(near,)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
