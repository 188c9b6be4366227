"""Several outboxes in one project, as the how-to makes them: its examples are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from django_outbox.devstack import Stack
from django_outbox.devstack.service import free_port

from ..machine import nightly
from ..processes import ROOT, Process
from ..services import Topics, is_ready, own_kafka, text_of
from ..waiting import eventually
from .documented import Command, DocumentedProject, Section
from .tables import OutboxTable, Server, project_environment

PAGE = ROOT / "docs/howto/several-outboxes.md"
CHOICES = {"OUTBOX", "TENANT", "METRICS_ADDRESS"}
"""Variables that the page's settings read."""

QUIET = {"ready", "leader_acquired", "meter_read"}
"""What a leader says that nobody disturbs."""

Make = Callable[..., DocumentedProject]


@pytest.fixture
def make(server: Server, services: Stack, tmp_path: Path) -> Iterator[Make]:
    """Makes the project of a section of the page."""
    environment = project_environment()
    environment = {k: v for k, v in environment.items() if k not in CHOICES}
    with ExitStack() as ends:

        def make(heading: str, instead: Mapping[str, str]) -> DocumentedProject:
            address = {"kafka:9092": services.bootstrap_servers}
            section = Section(PAGE, heading, {**address, **instead})
            project = DocumentedProject(
                tmp_path, section, environment, server=services.database_url
            )
            return ends.enter_context(project)

        yield make


@pytest.fixture
def shop(server: Server) -> Iterator[OutboxTable]:
    """A database without tables."""
    shop = server.create_empty()
    yield shop
    server.drop(shop)


@pytest.fixture
def stock(server: Server) -> Iterator[OutboxTable]:
    """Another one."""
    stock = server.create_empty()
    yield stock
    server.drop(stock)


@pytest.fixture
def tenants(shop: OutboxTable, make: Make, topic: str) -> DocumentedProject:
    """The project of the tenants, whose schemas are there and empty."""
    project = make(
        "## A schema for each tenant",
        {'"shop"': f'"{shop.database}"', '"orders"': f'"{topic}"'},
    )
    schemas, _ = project.section.blocks("sql")
    shop.execute(schemas)
    return project


def name_of(table: OutboxTable) -> str:
    """The name of an outbox in Kafka."""
    return f"outbox-leader-{table.identity}"


def sent(topics: Topics, topic: str, count: int) -> list[tuple[str, str]]:
    """The source and the key of each message in a topic."""
    messages = topics.read(topic, at_least=count)
    return sorted(
        (
            text_of(dict(message.headers() or [])["outbox-source"]),
            text_of(message.key()),
        )
        for message in messages
    )


def require_status(process: Process, table: OutboxTable, waiting: int) -> None:
    """Check that `outbox status` has shown this outbox with so many records."""
    name = name_of(table)
    assert f"leader   topic {name}, group {name}" in process.output
    (line,) = [line for line in process.output if line.startswith("waiting ")]
    assert line.startswith(f"waiting  {waiting} record"), line


def require_independence(one: OutboxTable, other: OutboxTable, topic: str) -> None:
    """Check that one outbox delivers while the other one is locked."""
    with psycopg.connect(other.url) as writer:
        writer.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        one.insert(topic, "during the lock")
        one.wait_until_empty()
    other.insert(topic, "after the lock")
    other.wait_until_empty()


@nightly
def test_two_databases_deliver_side_by_side(
    shop: OutboxTable, stock: OutboxTable, make: Make, topics: Topics, topic: str
) -> None:
    project = make(
        "## Two databases",
        {
            '"NAME": "shop"': f'"NAME": "{shop.database}"',
            '"NAME": "stock"': f'"NAME": "{stock.database}"',
            '"levels"': f'"{topic}"',
        },
    )
    commands = project.section.commands()
    migrate, migrate_stock, harvest, harvest_stock, status_stock = commands
    for command in (migrate, migrate_stock):
        project.run(command)
    assert shop.identity != stock.identity
    project.python(
        "from stock.levels import count\n"
        "for number in range(3):\n"
        "    count(f'item {number}', number)\n"
        "from django.db import transaction\n"
        "from django_outbox import stash\n"
        "with transaction.atomic():\n"
        f"    stash({topic!r}, key='order', value='placed')\n"
    )
    levels = stock.execute("SELECT item, quantity FROM stock_level ORDER BY item")
    assert levels == [(f"item {number}", str(number)) for number in range(3)]
    assert shop.execute("SELECT to_regclass('stock_level')") == [(None,)]
    require_status(project.run(status_stock), stock, waiting=3)
    require_status(project.run(Command({}, ("outbox", "status"))), shop, waiting=1)

    every = ("--database=default", "--database=stock")
    checked = project.run(Command({}, ("check", *every)))
    assert checked.output == ["System check identified no issues (0 silenced)."]

    leaders, addresses = [], []
    for name, command in {"shop": harvest, "stock": harvest_stock}.items():
        addresses.append(f"127.0.0.1:{free_port()}")
        variables = {"METRICS_ADDRESS": addresses[-1]}
        leaders.append(project.start(Command(variables, command.arguments), name))
    for table in (shop, stock):
        table.wait_until_empty()
    require_independence(shop, stock, topic)
    require_independence(stock, shop, topic)
    eventually(lambda: all(map(is_ready, addresses)))

    both = ("after the lock", "during the lock")
    assert sent(topics, topic, 8) == sorted(
        [(name_of(shop), key) for key in ("order", *both)]
        + [(name_of(stock), f"item {number}") for number in range(3)]
        + [(name_of(stock), key) for key in both]
    )
    for leader in leaders:
        assert leader.leads
        assert {event["event"] for event in leader.events} <= QUIET


def test_tenants_deliver_and_consume_their_own(
    tenants: DocumentedProject, shop: OutboxTable, topics: Topics, topic: str
) -> None:
    acme, globex = (shop.in_schema(schema) for schema in ("acme", "globex"))
    commands = tenants.section.commands()
    migrate_acme, migrate_globex, harvest_acme, harvest_globex, status, *rest = commands
    for command in (migrate_acme, migrate_globex):
        tenants.run(command)
    assert acme.identity != globex.identity
    assert shop.execute("SELECT to_regclass('public.outbox')") == [(None,)]
    tenants.python(
        "from shop.orders import place\n"
        "for tenant, number in (('acme', '1'), ('globex', '1'), ('acme', '2')):\n"
        "    place(tenant, number)\n"
    )
    require_status(tenants.run(status), acme, waiting=2)
    other = Command({}, ("outbox", "status", "--database=globex"))
    require_status(tenants.run(other), globex, waiting=1)

    leaders = [
        tenants.start(harvest_acme, "acme"),
        tenants.start(harvest_globex, "globex"),
    ]
    for table in (acme, globex):
        table.wait_until_empty()
    require_independence(acme, globex, topic)
    require_independence(globex, acme, topic)

    both = ["after the lock", "during the lock"]
    orders = {acme: ["1", "2", *both], globex: ["1", *both]}
    assert sent(topics, topic, 7) == sorted(
        (name_of(table), key) for table, keys in orders.items() for key in keys
    )
    for leader in leaders:
        assert leader.leads
        assert {event["event"] for event in leader.events} <= QUIET

    for consume in rest:
        arguments = (*consume.arguments, "--until-end")
        tenants.start(Command(consume.variables, arguments), "billing")
    for consumer in tenants.all[-len(rest) :]:
        assert consumer.exit_code() == 0, consumer.report()
    for table, keys in orders.items():
        charged = table.execute('SELECT "order" FROM shop_invoice ORDER BY "order"')
        assert charged == [(key,) for key in keys]
        # Each group has read the messages of both.
        assert table.execute("SELECT count(*) FROM outbox_processed") == [(7,)]


def test_a_role_for_each_tenant_needs_no_options(
    tenants: DocumentedProject, shop: OutboxTable, topics: Topics, topic: str
) -> None:
    role = f"tenant_{uuid4().hex}"
    _, statements = tenants.section.blocks("sql")
    shop.execute(statements.replace("initech", role).replace("…", "secret"))
    try:
        settings = tenants.folder / "shop/settings.py"
        alias = {"NAME": shop.database, "USER": role, "PASSWORD": "secret"}
        with settings.open("a") as file:
            file.write(f"DATABASES['initech'] = {{**SERVER, **{alias}}}\n")
        # PostgreSQL's own path has `public`, too, behind the role's schema.
        tenants.run(Command({}, ("migrate",)))
        tenants.run(Command({}, ("migrate", "--database=initech")))
        initech = shop.in_schema(role)
        initech.insert(topic, "key")
        status = Command({}, ("outbox", "status", "--database=initech"))
        require_status(tenants.run(status), initech, waiting=1)
        tenants.run(Command({}, ("runharvester", "--database=initech", "--drain")))
        assert initech.count() == 0
        assert sent(topics, topic, 1) == [(name_of(initech), "key")]
    finally:
        shop.execute(f"DROP OWNED BY {role} CASCADE")
        shop.execute(f"DROP ROLE {role}")


def test_a_second_schema_in_the_path_hides_that_the_tables_are_missing(
    shop: OutboxTable, make: Make
) -> None:
    project = make(
        "## A schema for each tenant",
        {
            '"shop"': f'"{shop.database}"',
            "search_path={tenant}": "search_path={tenant},public",
        },
    )
    shop.execute(project.section.blocks("sql")[0])
    migrate_acme = project.section.commands()[0]
    project.run(Command({}, ("migrate",)))

    migrated = project.run(migrate_acme)

    assert "  No migrations to apply." in migrated.output
    assert shop.execute("SELECT to_regclass('acme.outbox')") == [(None,)]


def test_stash_follows_a_connection_that_switches_its_schema(
    tenants: DocumentedProject, shop: OutboxTable
) -> None:
    for command in (Command({}, ("migrate",)), tenants.section.commands()[0]):
        tenants.run(command)
    shop.execute(
        "CREATE SCHEMA initech;"
        "CREATE TABLE initech.shop_order (LIKE public.shop_order INCLUDING ALL)"
    )
    tenants.python(
        "from shop.switching import place\n"
        "place('acme', 'own outbox')\n"
        "place('initech, public', 'outbox of all')\n"
    )
    written = {
        schema: shop.execute(f"SELECT number FROM {schema}.shop_order")
        for schema in ("acme", "initech", "public")
    }
    assert written == {
        "acme": [("own outbox",)],
        "initech": [("outbox of all",)],
        "public": [],
    }
    keys = "SELECT kafka_key FROM {outbox}"
    assert shop.in_schema("acme").execute(keys) == [("own outbox",)]
    assert shop.in_schema("public").execute(keys) == [("outbox of all",)]


@nightly
def test_two_kafkas_get_their_own_messages(
    shop: OutboxTable, make: Make, topics: Topics, topic: str, partner_kafka: str
) -> None:
    project = make(
        "## Two Kafkas",
        {
            '"NAME": "shop"': f'"NAME": "{shop.database}"',
            "kafka.partner.example:9092": partner_kafka,
            '"orders"': f'"{topic}"',
        },
    )
    theirs = Topics(partner_kafka)
    theirs.create(topic)
    (schema,) = project.section.blocks("sql")
    shop.execute(schema)
    commands = project.section.commands()
    migrate, migrate_partner, harvest, harvest_partner, *leader_commands = commands
    for command in (migrate, migrate_partner):
        project.run(command)
    ours, partner = shop.in_schema("public"), shop.in_schema("partner")
    assert shop.execute("SELECT to_regclass('partner.shop_order')") == [(None,)]
    project.python(
        "from django.db import transaction\n"
        "from shop.shipping import ship\n"
        "ship('1')\n"
        "try:\n"
        "    with transaction.atomic():\n"
        "        ship('2')\n"
        "        raise ValueError\n"
        "except ValueError:\n"
        "    ship('3')\n"
    )
    assert ours.count() == partner.count() == 2

    project.start(harvest, "to us").wait_for("leader_acquired")
    project.start(harvest_partner, "to the partner").wait_for("leader_acquired")
    for table in (ours, partner):
        table.wait_until_empty()

    leaders = [project.run(command).output for command in leader_commands]
    assert leaders == [["to us leads"], ["to the partner leads"]]
    keys = ("1", "3")
    assert sent(topics, topic, 2) == [(name_of(ours), key) for key in keys]
    assert sent(theirs, topic, 2) == [(name_of(partner), key) for key in keys]
    leader_topics = {name_of(ours), name_of(partner)}
    assert leader_topics & names(topics.servers) == {name_of(ours)}
    assert leader_topics & names(theirs.servers) == {name_of(partner)}


def names(servers: str) -> set[str]:
    """The topics of a Kafka."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return set(admin.list_topics(timeout=10).topics)


@pytest.fixture
def partner_kafka() -> Iterator[str]:
    """A second Kafka."""
    with own_kafka() as address:
        yield address
