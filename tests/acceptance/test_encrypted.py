"""Over TLS, with passwords and least rights, everything works and nothing leaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from django_outbox.devstack import Stack
from django_outbox.devstack.service import free_port

from ..integration.securedkafka import make_certificate
from ..machine import nightly
from ..processes import manage
from ..services import Topics, fetch
from ..waiting import eventually
from .groups import Groups
from .guarded import PASSWORD, GuardedKafka, guarded_kafka, variables
from .harvesters import PATIENT, Harvesters
from .tables import OutboxTable, project_environment
from .tls_terminator import TlsTerminator

HARVESTER, CONSUMER, APP = ("shop-harvester", "billing", "shop-app")
"""Users of Kafka, and of the database."""

OPERATOR: Final = "shop-admin"
"""Only of the database."""

ROLES: Final = (HARVESTER, CONSUMER, APP, OPERATOR)

PAYLOAD: Final = "canary-payload"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate of `localhost`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "localhost")
    return folder


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of the same name, which somebody else has made."""
    folder = tmp_path_factory.mktemp("stranger")
    make_certificate(folder, "localhost")
    return folder / "certificate.pem"


@pytest.fixture(scope="module")
def kafka(certificates: Path) -> Iterator[GuardedKafka]:
    with guarded_kafka(certificates) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topics(kafka: GuardedKafka) -> Topics:
    topics = Topics(kafka.address)
    for name in ("orders", "accounts", "orders.dlt"):
        topics.create(name)
    return topics


@pytest.fixture(scope="module")
def groups(kafka: GuardedKafka) -> Groups:
    return Groups(kafka.address)


@pytest.fixture(scope="module")
def grants(services: Stack) -> str:
    """The statements that give each role its rights."""
    everybody = (
        *("--harvester", HARVESTER, "--consumer", CONSUMER),
        *("--app", CONSUMER, "--operator", OPERATOR),
    )
    return "\n".join(
        manage(
            *("outbox", "grants", *options),
            environment={
                **project_environment(),
                "DATABASE_URL": services.database_url,
                "KAFKA_BOOTSTRAP_SERVERS": services.bootstrap_servers,
            },
        )
        for options in (everybody, ("--app", APP))
    )


@pytest.fixture
def database(
    table: OutboxTable, grants: str, certificates: Path
) -> Iterator[Callable[[str], str]]:
    """Give the URL by which a role connects; each has its grants and no more."""
    owner = urlsplit(table.url)
    assert owner.hostname
    assert owner.port
    for role in ROLES:
        table.execute(f"CREATE ROLE \"{role}\" LOGIN PASSWORD '{PASSWORD}'")
    with table.connect() as connection:
        connection.execute(grants.encode())
    # The example's own: the leader writes invoices.
    for name in ("account", "charge", "invoice", "leadership"):
        for role in (CONSUMER, HARVESTER):
            table.execute(f'GRANT ALL ON billing_{name} TO "{role}"')
    table.execute(f'GRANT SELECT, UPDATE ON shop_order TO "{HARVESTER}"')
    with TlsTerminator((owner.hostname, owner.port), certificates) as terminator:
        yield (
            lambda role: (
                f"postgres://{role}:{quote(PASSWORD)}@localhost:{terminator.port}"
                f"/{table.database}?sslmode=verify-full&sslrootcert="
                f"{quote(str(certificates / 'certificate.pem'))}"
            )
        )
    for role in ROLES:
        table.execute(f'DROP OWNED BY "{role}"')
        table.execute(f'DROP ROLE "{role}"')


@pytest.fixture
def environment(table: OutboxTable) -> Mapping[str, str]:
    without_kafka = project_environment()
    without_kafka.pop("KAFKA_BOOTSTRAP_SERVERS", None)
    return {
        **without_kafka,
        **PATIENT,
        "OUTBOX_TABLE": table.name,
        "OUTBOX_LEADER_TOPIC": "shop-outbox",
        "OUTBOX_LEADER_GROUP": "shop-outbox",
        "OUTBOX_CONSUMER_ATTEMPTS": "1",
        "OUTBOX_METER_INTERVAL": "0.5",
    }


@pytest.mark.parametrize(
    "delivery", ["at-least-once", pytest.param("exactly-once", marks=nightly)]
)
def test_everything_works_and_no_secret_and_no_payload_is_told(
    delivery: str,
    kafka: GuardedKafka,
    topics: Topics,
    harvesters: Harvesters,
    table: OutboxTable,
    database: Callable[[str], str],
    certificates: Path,
) -> None:
    authority = certificates / "certificate.pem"
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]

    def of(user: str) -> dict[str, str]:
        kafka_client = kafka.signed_in_over_tls(user, authority=authority)
        return {"DATABASE_URL": database(user), **variables(kafka_client)}

    harvester = harvesters.start(
        OUTBOX_DELIVERY=delivery, OUTBOX_METRICS_ADDRESS=addresses[0], **of(HARVESTER)
    )
    consumer = harvesters.run(
        *("runconsumer", "--log-format", "json", "--name", "billing-1"),
        name="billing-1",
        OUTBOX_CONSUMER_METRICS_ADDRESS=addresses[1],
        **of(CONSUMER),
    )
    harvester.wait_for("leader_acquired")
    customer = f"{PAYLOAD}-{delivery}"
    order = {"status": "placed", "customer": customer, "amount": "3"}
    with psycopg.connect(database(APP)) as app:
        app.execute(
            "INSERT INTO outbox (create_time, kafka_topic, kafka_key, kafka_value)"
            " VALUES (now(), 'orders', '17', %s)",
            [json.dumps(order)],
        )

    def owed() -> list[str]:
        values = [json.loads(m.value() or b"") for m in topics.read("accounts")]
        return [v["owed"] for v in values if v["customer"] == customer]

    assert eventually(owed, what="the account") == ["3.00"]
    table.wait_until_empty()
    pages = [
        fetch(address, page)[1]
        for address in addresses
        for page in ("/metrics", "/readyz", "/livez")
    ]
    assert "django_outbox_leader 1.0" in pages[0]
    operated = {**of(HARVESTER), "DATABASE_URL": database(OPERATOR)}
    commands = [
        manage("outbox", verb, environment={**harvesters.environment, **operated})
        for verb in ("status", "leader", "settings")
    ]
    for process in (consumer, harvester):
        process.terminate()
        assert process.exit_code() == 0
    told = [*pages, *commands, consumer.report(), harvester.report()]
    for secret in (PASSWORD, PAYLOAD, "PRIVATE KEY"):
        assert [text for text in told if secret in text] == []


@pytest.mark.parametrize(
    ("impostor", "told"),
    [("kafka", "certificate not trusted"), ("database", "certificate verify failed")],
)
@pytest.mark.usefixtures("topics")
def test_a_server_that_somebody_else_plays_is_not_believed(
    impostor: str,
    told: str,
    kafka: GuardedKafka,
    harvesters: Harvesters,
    database: Callable[[str], str],
    certificates: Path,
    stranger: Path,
) -> None:
    right = certificates / "certificate.pem"
    url = database(HARVESTER)
    if impostor == "database":
        url = url.replace(quote(str(right)), quote(str(stranger)))
    authority = stranger if impostor == "kafka" else right
    harvester = harvesters.start(
        DATABASE_URL=url,
        **variables(kafka.signed_in_over_tls(HARVESTER, authority=authority)),
    )
    harvester.wait_for_log(told)
    # Stopped while its clients wait for an answer over TLS.
    harvester.terminate()
    assert harvester.exit_code() == 0
    assert harvester.all("leader_acquired") == []


def test_a_database_under_another_name_is_not_believed(
    harvesters: Harvesters, kafka: GuardedKafka, database: Callable[[str], str]
) -> None:
    harvester = harvesters.start(
        DATABASE_URL=database(HARVESTER).replace("@localhost:", "@127.0.0.1:"),
        **kafka.environment(HARVESTER),
    )
    harvester.wait_for_log("does not match host name")
    harvester.terminate()
    assert harvester.exit_code() == 0
    assert harvester.all("leader_acquired") == []
