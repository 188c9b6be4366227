"""
pytest fixtures for projects that write to the outbox.

pytest loads them once django-outbox is installed. They need pytest-django, and
import nothing else before a test requests one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from ..devstack import Stack
    from ..models import OutboxRecord

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

        records = OutboxRecord.objects.using(using or settings.DATABASE).order_by("pk")
        return list(records if topic is None else records.filter(kafka_topic=topic))

    return read


@pytest.fixture(scope="session")
def outbox_devstack() -> Iterator[Stack]:
    """
    A PostgreSQL and a Kafka for the session: `.database_url`, `.bootstrap_servers`.

    From the environment, from Docker, or embedded; see `django_outbox.devstack`.
    """
    from ..devstack import devstack

    with devstack() as stack:
        yield stack
