"""The names of an election, from settings and identity."""

from __future__ import annotations

from typing import Any

import pytest

from django_outbox.exceptions import ConfigurationError, InvalidMessage, WrongOutbox
from django_outbox.message.limits import Topics
from django_outbox.message.record import Identity
from django_outbox.postgres.outbox_identity import KnownOutbox, named_by
from django_outbox.settings.options import OutboxSettings

HERE = Identity("3f2a9c1b-7d4e-4f00-8000-000000000001", "77/16385")
DERIVED = "outbox-leader-3f2a9c1b7d4e"


def learn(identity: Identity | None = HERE, **values: Any) -> OutboxSettings:
    return KnownOutbox(OutboxSettings(**values), table="outbox").learn(identity)


def names(options: OutboxSettings) -> tuple[str, str, str]:
    return options.leader_topic, options.leader_group, options.source


def test_nobody_named_them() -> None:
    options = learn()
    assert names(options) == (DERIVED,) * 3
    assert options.ledger_topic == f"{DERIVED}.ledger"
    assert options.sources == (DERIVED,)


def test_what_is_named_stays() -> None:
    given: dict[str, Any] = {"LEADER_TOPIC": "leaders", "LEADER_GROUP": "group"}
    assert names(learn(**given)) == ("leaders", "group", "group")
    assert names(learn(None, **given)) == ("leaders", "group", "group")


def test_one_name_gives_the_other() -> None:
    """Two outboxes that share one of them meet in the topic, and notice."""
    assert names(learn(LEADER_GROUP="group")) == ("neli.group", "group", "group")
    assert names(learn(LEADER_TOPIC="leaders")) == ("leaders",) * 3


def test_the_source_may_be_named_alone() -> None:
    assert names(learn(SOURCE="shop")) == (DERIVED, DERIVED, "shop")


def test_several_clusters_share_the_names_of_all_their_databases() -> None:
    options = [learn(CLUSTERS_COUNT=2, CLUSTER_ID=n) for n in range(2)]
    assert [names(o)[0] for o in options] == ["outbox-leader", "outbox-leader-1"]
    assert options[0].cluster_sources == ("outbox-leader/0", "outbox-leader/1")


def test_a_table_without_an_identity_needs_names() -> None:
    with pytest.raises(ConfigurationError) as caught:
        learn(None)
    assert str(caught.value).startswith("LEADER_TOPIC and LEADER_GROUP are not set")
    assert "'outbox_identity'" in str(caught.value)


def test_names_that_are_not_known_yet_are_not_made_up() -> None:
    unknown = named_by(OutboxSettings(), None)
    for name in ("leader_topic", "leader_group", "ledger_topic", "source"):
        with pytest.raises(LookupError, match="named_settings"):
            getattr(unknown, name)


def test_a_database_that_moved_is_followed_and_another_outbox_is_not() -> None:
    known = KnownOutbox(OutboxSettings(), table="outbox")
    known.learn(HERE)
    known.learn(HERE._replace(system="78/16385"))
    assert known.identity == ("3f2a9c1b-7d4e-4f00-8000-000000000001", "78/16385")
    known.learn(None)
    assert known.identity is not None
    with pytest.raises(WrongOutbox, match="Restart this process"):
        known.learn(HERE._replace(outbox="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"))


@pytest.mark.parametrize(
    "topic",
    [DERIVED, f"{DERIVED}.ledger", "outbox-leader", "outbox-leader-1", "any.ledger"],
)
def test_no_message_may_name_a_topic_of_any_election(topic: str) -> None:
    """Which one is this outbox's the application does not know."""
    with pytest.raises(InvalidMessage, match="is reserved"):
        Topics(OutboxSettings()).check(topic)


@pytest.mark.parametrize("topic", ["outbox-leaders", "ledger", "orders.ledger.v1"])
def test_a_similar_name_is_free(topic: str) -> None:
    Topics(OutboxSettings()).check(topic)
