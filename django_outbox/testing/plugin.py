"""
pytest fixtures for projects that write to the outbox.

pytest finds them by itself once django-outbox is installed; they need
pytest-django, and nothing else is imported before a test asks for one.
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
    Call it to get what waits in the outbox, oldest first.

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
