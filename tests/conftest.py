"""
The services of the tests and what leads to them, and the order of the tests.

The first test that needs a service starts a devstack for the session; a test
that needs none never waits for it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from django_outbox.conf import settings as outbox_settings
from django_outbox.devstack import DevstackError, Stack, devstack
from django_outbox.devstack.stack import PRIVATE

from . import groups
from .acceptance import lag
from .browsers import WITHOUT_BROWSER
from .machine import do_without
from .services import Topics
from .turns import turn

TURNS = pytest.StashKey[str]()


def pytest_configure() -> None:
    """Let SIGTERM end a run as Ctrl-C does: fixtures end what they have started."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Begin with the longest tests where several processes share them."""
    yield
    if hasattr(config, "workerinput"):
        groups.sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let each process take a group of tests after the other, in their order."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return groups.group(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that counts on a quiet machine have it to itself."""
    if not hasattr(item.config, "workerinput") or groups.only_waits(item):
        return (yield)
    shared = Path(item.config.workerinput["turns"])
    with turn(shared, is_alone=groups.is_alone(item.nodeid)):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long records took to the log, and whether no browser was there."""
    lag.summarize(terminalreporter)
    skipped = terminalreporter.getreports("skipped")
    if any(WITHOUT_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(WITHOUT_BROWSER, yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each process of the run the folder in which they take turns."""
    config: pytest.Config = node.config
    if TURNS not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="django-outbox-tests-")
        config.stash[TURNS] = folder.name
        config.add_cleanup(folder.cleanup)
    node.workerinput["turns"] = config.stash[TURNS]


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """
    A Postgres and a Kafka for the whole session, shared by all tests.

    The variables that name them are set from here on, for child processes.
    """
    for started in _provide(request):
        with _alone(started), pytest.MonkeyPatch.context() as patch:
            for name, value in started.environment.items():
                patch.setenv(name, value)
            yield started


@pytest.fixture(scope="module")
def private_services(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Servers of this module's own, for tests that stop and kill them."""
    yield from _provide(request, sources=PRIVATE)


@pytest.fixture(scope="session")
def bootstrap_servers(services: Stack) -> str:
    """Kafka's address; Django's settings lead there too from here on."""
    settings.DJANGO_OUTBOX["KAFKA"]["bootstrap.servers"] = services.bootstrap_servers
    settings.KAFKA_BOOTSTRAP_SERVERS = services.bootstrap_servers
    outbox_settings.reset()
    return services.bootstrap_servers


@pytest.fixture(scope="session")
def topics(bootstrap_servers: str) -> Topics:
    """Makes topics and reads them to their end."""
    return Topics(bootstrap_servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A new topic with one partition."""
    return topics.create()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(services: Stack) -> None:
    """Point Django's aliases at the session's Postgres before they are used."""
    server = conninfo_to_dict(services.database_url)
    for database in settings.DATABASES.values():
        database.update(
            HOST=server["host"],
            PORT=server.get("port", ""),
            USER=server.get("user", ""),
            PASSWORD=server.get("password", ""),
        )


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The URL of the test database, for connections and processes of one's own."""
    return _url_of("default")


@pytest.fixture
def child_environment(database_url: str, bootstrap_servers: str) -> dict[str, str]:
    """The environment of child processes that share this test's services."""
    return {
        **os.environ,
        "DATABASE_URL": database_url,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
    }


@pytest.fixture
def postgres(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to the test database, in autocommit mode."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def other_database_url(transactional_db: None) -> str:
    """The URL of a second one, for tests that are marked for the alias `other`."""
    return _url_of("other")


@pytest.fixture
def other_postgres(other_database_url: str) -> Iterator[psycopg.Connection]:
    """A plain connection to the second one, in autocommit mode."""
    with psycopg.connect(other_database_url, autocommit=True) as connection:
        yield connection


@contextmanager
def _alone(services: Stack) -> Iterator[None]:
    """Use the servers for one run at a time: another would drop its test database."""
    # No test forks with it, and the lock goes with the connection.
    with psycopg.connect(services.database_url, autocommit=True) as connection:
        locked = "SELECT pg_try_advisory_lock(hashtext('django-outbox tests'))"
        if connection.execute(locked).fetchone() != (True,):
            pytest.exit(
                "Another test run uses the server that DATABASE_URL names. Wait for its"
                " end, or unset DATABASE_URL: then this run starts its own servers.",
                returncode=pytest.ExitCode.USAGE_ERROR,
            )
        yield


def _provide(
    request: pytest.FixtureRequest, **options: tuple[str, ...]
) -> Iterator[Stack]:
    """Start what is missing; without it skip on a laptop, but fail in CI."""
    terminal = request.config.get_terminal_writer()

    def progress(line: str) -> None:
        if request.config.option.verbose > 0:
            terminal.line(f"\n{line}")

    try:
        stack = devstack(progress=progress, **options)
        started = stack.__enter__()
    except DevstackError as error:
        do_without(str(error))
    try:
        yield started
    finally:
        connections.close_all()
        stack.__exit__(None, None, None)


def _url_of(alias: str) -> str:
    database = connections[alias].settings_dict
    return (
        f"postgres://{database['USER']}:{database['PASSWORD']}"
        f"@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    )
