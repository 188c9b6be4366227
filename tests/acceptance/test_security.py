"""The rights that the page on security lists suffice, and stop what it says."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation

from django_outbox.election.ports import JoinLater
from django_outbox.exceptions import KafkaUnavailable
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.kafka.consumer_output import KafkaDeadLetters, KafkaTransforms
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.kafka.partitions import KafkaPartitions
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.kafka.transactions import KafkaTransactions
from django_outbox.kafka.validation import check_properties
from django_outbox.message.incoming import OutgoingMessage
from django_outbox.message.record import Record
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.rules import problems

from ..contracts.clusters import Reports
from ..machine import nightly
from ..services import Topics
from ..waiting import eventually
from .groups import Groups
from .guarded import GuardedKafka, acls_of_the_page, guarded_kafka
from .harvesters import PATIENT, Harvesters
from .tables import OutboxTable, project_environment


@pytest.fixture(scope="module")
def kafka() -> Iterator[GuardedKafka]:
    with guarded_kafka() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topics(kafka: GuardedKafka) -> Topics:
    topics = Topics(kafka.address)
    for name in ("orders", "accounts", "orders.dlt", "totals"):
        topics.create(name)
    return topics


@pytest.fixture(scope="module")
def groups(kafka: GuardedKafka) -> Groups:
    return Groups(kafka.address)


@pytest.fixture
def environment(table: OutboxTable) -> Mapping[str, str]:
    without_kafka = project_environment()
    without_kafka.pop("KAFKA_BOOTSTRAP_SERVERS", None)
    return {
        **without_kafka,
        **PATIENT,
        "DATABASE_URL": table.url,
        "OUTBOX_TABLE": table.name,
        "OUTBOX_LEADER_TOPIC": "shop-outbox",
        "OUTBOX_LEADER_GROUP": "shop-outbox",
        "OUTBOX_CONSUMER_ATTEMPTS": "1",
    }


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_harvester_and_consumer_need_no_more_than_their_rights(
    delivery: str,
    kafka: GuardedKafka,
    topics: Topics,
    harvesters: Harvesters,
    table: OutboxTable,
) -> None:
    """From the shop over Kafka to billing and back to Kafka; one message fails."""
    customer = f"ada-{delivery}"
    harvester = harvesters.start(
        OUTBOX_DELIVERY=delivery, **kafka.environment("shop-harvester")
    )
    consumer = harvesters.run(
        *("runconsumer", "--log-format", "json", "--name", "billing-1"),
        name="billing-1",
        # Asks for topic ids and the ends of partitions, too.
        OUTBOX_OFFSETS="database" if delivery == "exactly-once" else "kafka",
        **kafka.environment("billing"),
    )
    harvester.wait_for("leader_acquired")
    order = {"status": "placed", "customer": customer, "amount": "3"}
    table.insert("orders", "17", json.dumps(order))
    table.insert("orders", f"no order: {delivery}", json.dumps(order))

    def is_dead() -> bool:
        """The topic may hold other tests' messages, which fail before it."""
        keys = {message.key() for message in topics.read("orders.dlt")}
        return f"no order: {delivery}".encode() in keys

    eventually(is_dead, what="dead letter")
    assert {told["error"] for told in consumer.all("dead_lettered")} == {"ValueError"}
    table.wait_until_empty()
    values = [json.loads(m.value() or b"") for m in topics.read("accounts")]
    assert [v["owed"] for v in values if v["customer"] == customer] == ["3.00"]
    for process in (consumer, harvester):
        process.terminate()
        assert process.exit_code() == 0
        assert "AUTHORIZATION" not in "".join(process.log)


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        ("shop-harvester", "orders.dlt"),
        ("shop-harvester", "totals"),
        ("billing", "orders"),
        ("billing", "shop-outbox"),
        ("billing", "shop-outbox.ledger"),
        ("order-totals", "orders"),
        ("order-totals", "shop-outbox.ledger"),
        ("shop-app", "orders"),
    ],
)
@pytest.mark.usefixtures("topics")
def test_nobody_else_writes_to_a_topic(
    user: str, topic: str, kafka: GuardedKafka
) -> None:
    failures: list[str] = []
    producer = Producer(
        {**kafka.signed_in(user), "message.timeout.ms": 15_000, "log_level": 0}
    )
    producer.produce(
        topic,
        b"forged",
        on_delivery=lambda error, _: failures.append(error.name() if error else "no"),
    )
    producer.flush(30)
    assert failures == ["TOPIC_AUTHORIZATION_FAILED"]


@pytest.mark.parametrize("user", ["billing", "order-totals", "shop-app"])
@pytest.mark.usefixtures("topics")
def test_nobody_else_joins_the_leader_group(user: str, kafka: GuardedKafka) -> None:
    errors: list[str] = []
    consumer = Consumer(
        {
            **kafka.signed_in(user),
            "group.id": "shop-outbox",
            "error_cb": lambda error: errors.append(error.name()),
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(["orders"])

        def is_refused() -> bool:
            message = consumer.poll(0.1)
            if message is not None and (error := message.error()) is not None:
                errors.append(error.name())
            return "GROUP_AUTHORIZATION_FAILED" in errors

        eventually(is_refused, what=errors)
    finally:
        consumer.close()


@pytest.mark.parametrize("name", ["shop-outbox.0", "shop-outbox.0.2"])
@pytest.mark.parametrize("user", ["billing", "order-totals", "shop-app"])
def test_nobody_else_fences_the_producer(
    user: str, name: str, kafka: GuardedKafka
) -> None:
    transactional = {"transactional.id": name, "log_level": 0}
    producer = Producer({**kafka.signed_in(user), **transactional})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(30)
    refusal = caught.value.args[0].name()
    assert refusal == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def test_the_page_gives_no_right_to_all() -> None:
    wide = (AclOperation.ALL, AclOperation.ANY)

    def is_wide(acl: AclBinding) -> bool:
        return "*" in (acl.name, acl.principal) or acl.operation in wide

    acls = acls_of_the_page()
    assert len(acls) > 15
    assert not list(filter(is_wide, acls))
    assert not [acl for acl in acls if "shop-app" in acl.principal]


def token_of(user: str) -> str:
    """A token as this broker takes it: nobody has signed it."""

    def encoded(part: Mapping[str, object]) -> str:
        return urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()

    now = time.time()
    claims = {"sub": user, "iat": now, "exp": now + 3600}
    return f"{encoded({'alg': 'none', 'typ': 'JWT'})}.{encoded(claims)}."


def callback(user: str) -> dict[str, Any]:
    """As AWS's package would be used: a function of the project's own."""
    return {"oauth_cb": lambda _: (token_of(user), time.time() + 3600)}


class TokenEndpoint(BaseHTTPRequestHandler):
    """An identity provider that believes everybody; the client's id is the user."""

    def do_POST(self) -> None:  # the name that http.server looks for
        basic = self.headers["Authorization"].removeprefix("Basic ")
        user = b64decode(basic).decode().partition(":")[0]
        body = json.dumps({"access_token": token_of(user), "expires_in": 3600})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a token endpoint."""
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


@pytest.fixture(params=["oauth_cb", "oidc"])
def options_of(
    request: pytest.FixtureRequest, kafka: GuardedKafka, provider: str
) -> Callable[[str], OutboxSettings]:
    """Settings of a user who signs in with a token, got in one way or the other."""

    def options(user: str) -> OutboxSettings:
        endpoint = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": provider,
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": "secret",
        }
        values: dict[str, Any] = {
            "LEADER_TOPIC": "shop-outbox",
            "LEADER_GROUP": "shop-outbox",
            "DELIVERY": "exactly-once",
            "DELIVERY_TIMEOUT": 6.0,
            "KAFKA": {
                "bootstrap.servers": kafka.guarded,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                **(callback(user) if request.param == "oauth_cb" else endpoint),
            },
        }
        assert list(problems(values)) == []
        return OutboxSettings(**values)

    return options


class Listening:
    """A candidate that notes when it has the partition."""

    def __init__(self) -> None:
        self.has_partition = False

    def assigned(self) -> None:
        self.has_partition = True

    def revoked(self) -> None:
        """It has nothing to drain."""

    lost = revoked

    def heard(self, *_: object) -> None:
        """Nobody speaks."""

    confirmed = heard


@pytest.mark.usefixtures("topics")
def test_every_client_of_a_harvester_signs_in_with_a_token(
    options_of: Callable[[str], OutboxSettings],
) -> None:
    options = options_of("shop-harvester")
    check_properties(options)
    membership, listener = KafkaMembership(options), Listening()
    producer, reports = KafkaProducer(options), Reports()
    transactions = KafkaTransactions(options, fencing_token=None, origin=0)

    try:
        eventually(lambda: _has_joined(membership, listener), what="join")
        reports.send(
            producer,
            Record.identified(1, str(uuid4()))._replace(topic="orders", value=b"{}"),
        )
        reports.wait(producer, 1)
        assert reports == [(1, None)]
        ledger = transactions.open()
        assert transactions.read() == ledger
    finally:
        transactions.close()
        producer.close()
        membership.leave()


def _has_joined(membership: KafkaMembership, listener: Listening) -> bool:
    if not listener.has_partition:
        with suppress(JoinLater):
            membership.join(listener)
        membership.poll(0.2)
    return listener.has_partition


@nightly
@pytest.mark.usefixtures("topics")
def test_an_identity_provider_that_is_away_is_waited_for(kafka: GuardedKafka) -> None:
    """The driver raises an error of its own wherever it makes a client."""
    away = threading.Event()
    away.set()

    def token(_: str) -> tuple[str, float]:
        if away.is_set():
            raise ConnectionError("no identity provider")
        return token_of("billing"), time.time() + 3600

    options = OutboxSettings(
        LEADER_TOPIC="shop-outbox",
        KAFKA={
            "bootstrap.servers": kafka.guarded,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": token,
        },
    )
    source = KafkaSource(options, group="billing", topics=["orders"])
    assert source.poll(1, 0.1) == []
    with pytest.raises(KafkaUnavailable):
        KafkaMembership(options).join(Listening())
    away.clear()
    try:
        eventually(lambda: source.poll(1, 0.2) or source.partitions)
    finally:
        source.close()


@pytest.mark.usefixtures("topics")
def test_every_client_of_consumers_signs_in_with_a_token(
    options_of: Callable[[str], OutboxSettings], topics: Topics
) -> None:
    options = options_of("order-totals")
    source = KafkaSource(options, group="order-totals", topics=["orders"])
    try:
        eventually(lambda: source.poll(1, 0.2) or source.partitions)
        state = KafkaPartitions(options).look([("orders", 0)])[("orders", 0)]
        assert state.high >= state.low
        KafkaDeadLetters(options).send(OutgoingMessage("orders.dlt", "k", "token", []))
        transforms = KafkaTransforms(
            options, transactional_id="order-totals-1", member=source
        )
        transforms.send(
            [OutgoingMessage("totals", "k", "t", [])], {("orders", 0): 0}, "token"
        )
        assert source.token(("orders", 0)) == "token"
    finally:
        source.close()
    assert topics.read("totals")[-1].value() == b"t"
