"""One harvester a database; two databases in one project."""

from __future__ import annotations

import pytest
from django.db import connections, transaction

from django_outbox import stash
from django_outbox.conf import OutboxImproperlyConfigured
from django_outbox.harvester.harvester import Harvester
from django_outbox.models import OutboxRecord
from django_outbox.postgres.outbox_identity import read_identity
from tests.waiting import eventually

from ..services import Topics
from .harvesting import Witness, fast_options


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_two_databases_have_two_leaders_with_default_names(
    bootstrap_servers: str, topics: Topics
) -> None:
    aliases, topic = ("default", "other"), topics.create()
    options = fast_options(bootstrap_servers, LEADER_TOPIC="", LEADER_GROUP="")
    witness = Witness()
    harvesters = [
        Harvester(name=alias, database=alias, options=options, observers=[witness])
        for alias in aliases
    ]
    for alias in aliases:
        with transaction.atomic(using=alias):
            stash(topic, key="key", value=alias, using=alias)

    with harvesters[0], harvesters[1]:
        for alias in aliases:
            witness.wait_for("leader_acquired", name=alias)
        eventually(lambda: not any(map(waits, aliases)))

    sent = {
        m.value(): dict(m.headers() or [])["outbox-source"] for m in topics.read(topic)
    }
    assert sent == {alias.encode(): source(alias) for alias in aliases}
    assert sent[b"default"] != sent[b"other"]


def waits(alias: str) -> bool:
    """Whether a record is left in a database."""
    return OutboxRecord.objects.using(alias).exists()


def source(alias: str) -> bytes:
    """What the header says of a database's outbox."""
    identity = read_identity(connections[alias], "outbox")
    assert identity is not None
    return b"outbox-leader-" + identity.outbox.replace("-", "")[:12].encode()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_two_databases_are_harvested_by_two_harvesters(
    bootstrap_servers: str, topics: Topics
) -> None:
    aliases = ("default", "other")
    witnesses = {alias: Witness() for alias in aliases}
    sent = {alias: topics.create() for alias in aliases}
    harvesters = {
        alias: Harvester(
            name=alias,
            database=alias,
            options=fast_options(bootstrap_servers, SOURCE=alias),
            observers=[witnesses[alias]],
        )
        for alias in aliases
    }
    for alias in aliases:
        with transaction.atomic(using=alias):
            for number in range(20):
                stash(sent[alias], key=f"{number % 3}", value=alias, using=alias)

    with harvesters["default"]:
        eventually(lambda: not OutboxRecord.objects.using("default").exists())
        assert OutboxRecord.objects.using("other").count() == 20
        with harvesters["other"]:
            eventually(lambda: not OutboxRecord.objects.using("other").exists())

    for alias in aliases:
        messages = topics.read(sent[alias])
        assert {message.value() for message in messages} == {alias.encode()}
        assert {dict(m.headers() or [])["outbox-source"] for m in messages} == {
            alias.encode()
        }
        assert len(messages) == 20


@pytest.mark.django_db
def test_an_alias_that_does_not_exist_is_named(bootstrap_servers: str) -> None:
    options = fast_options(bootstrap_servers)
    with pytest.raises(OutboxImproperlyConfigured, match=r"'nowhere'.*default, other"):
        Harvester(database="nowhere", options=options).start()


@pytest.mark.django_db(transaction=True)
def test_a_database_of_another_cluster_is_not_led(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = fast_options(bootstrap_servers, CLUSTERS_COUNT=2, MAXIMUM_DELAY=60.0)
    witness = Witness()

    with Harvester(options=options, observers=[witness]):
        eventually(lambda: "outbox cluster init" in caplog.text)

    assert witness.kinds() == ["stopped"]
