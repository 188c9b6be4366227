"""The fixtures that a project's own tests get."""

from __future__ import annotations

import pytest
from django.db import transaction
from pytest_django import Settings

from django_outbox import stash
from django_outbox.devstack import Stack
from django_outbox.testing.plugin import Stashed

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def test_stashed_shows_what_waits_oldest_first(stashed: Stashed) -> None:
    stash("orders", key="1", value="a")
    stash("audit", key="1", value="b")
    stash("orders", key="1", value=None)

    assert ["a", "b", None] == [record.kafka_value for record in stashed()]
    assert ["a", None] == [record.kafka_value for record in stashed("orders")]


def test_stashed_forgets_what_was_rolled_back(stashed: Stashed) -> None:
    with transaction.atomic():
        stash("orders", key="1", value=None)
        transaction.set_rollback(True)

    assert [] == stashed()


def test_stashed_reads_another_database(stashed: Stashed) -> None:
    with transaction.atomic("other"):
        stash("orders", key="1", value=None, using="other")

    assert [] == stashed()
    assert 1 == len(stashed(using="other"))


def test_stashed_reads_the_database_of_the_setting(
    stashed: Stashed, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"DATABASE": "other"}
    with transaction.atomic("other"):
        stash("orders", key="1", value=None)

    assert 1 == len(stashed())
    assert [] == stashed(using="default")


def test_the_devstack_has_two_addresses(
    services: Stack, outbox_devstack: Stack
) -> None:
    assert services.bootstrap_servers == outbox_devstack.bootstrap_servers
    assert outbox_devstack.database_url.startswith("postgres")
