"""A harvester inside an application: start, stop, join, `with`, fork."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connections, transaction

from django_outbox import stash
from django_outbox.harvester.harvester import Harvester
from django_outbox.models import OutboxRecord
from tests.waiting import eventually

from ..services import Topics
from .harvesting import PATIENCE, Witness, fast_options

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def witness() -> Witness:
    return Witness()


@pytest.fixture
def harvester(bootstrap_servers: str, witness: Witness) -> Iterator[Harvester]:
    options = fast_options(bootstrap_servers)
    harvester = Harvester(options=options, observers=[witness])
    yield harvester
    harvester.stop()
    harvester.join(PATIENCE)


def send_one(topic: str) -> None:
    with transaction.atomic():
        stash(topic, key="key", value="value")


def is_empty() -> bool:
    return not OutboxRecord.objects.exists()


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("outbox-")}


def test_it_harvests_inside_a_with_block(
    harvester: Harvester, witness: Witness, topics: Topics, topic: str
) -> None:
    send_one(topic)
    with harvester:
        assert harvester.is_alive
        eventually(is_empty)
    assert not harvester.is_alive
    assert threads() == set()
    assert witness.kinds() == [
        *("ready", "leader_acquired", "leader_revoked", "stopped")
    ]
    assert len(topics.read(topic)) == 1


def test_the_block_ends_in_order_when_it_raises(
    harvester: Harvester, witness: Witness
) -> None:
    with pytest.raises(LookupError), harvester:
        raise LookupError
    assert witness.kinds()[-1] == "stopped"
    assert threads() == set()


def test_stop_and_join_may_be_called_at_any_time(
    harvester: Harvester, witness: Witness
) -> None:
    harvester.stop()
    assert harvester.join()
    harvester.start()
    harvester.stop()
    harvester.stop()
    assert harvester.join(PATIENCE)
    assert harvester.join()
    harvester.stop()
    assert witness.kinds().count("stopped") == 1


def test_join_says_whether_it_has_ended(harvester: Harvester, witness: Witness) -> None:
    with harvester:
        witness.wait_for("ready")
        assert harvester.join(0.01) is False


def test_it_cannot_be_started_twice(harvester: Harvester) -> None:
    with harvester, pytest.raises(RuntimeError, match="already running"):
        harvester.start()


def test_it_can_be_started_again_when_it_has_ended(
    harvester: Harvester, witness: Witness, topics: Topics, topic: str
) -> None:
    for _ in range(2):
        with harvester:
            send_one(topic)
            eventually(is_empty)
    assert witness.kinds().count("ready") == 2
    leaders = {e.leader_id for e in witness.events if e.kind == "leader_acquired"}
    assert len(leaders) == 2
    assert len(topics.read(topic)) == 2


def test_a_thread_that_dies_ends_the_run_and_is_told_by_join(
    harvester: Harvester, witness: Witness
) -> None:
    def fail(event: object) -> int:
        raise KeyboardInterrupt

    harvester._send = fail
    harvester.start()
    with pytest.raises(KeyboardInterrupt):
        harvester.join(PATIENCE)
    assert not harvester.is_alive
    assert witness.kinds()[-1] == "stopped"


def in_child(body: Callable[[], None]) -> int | None:
    """Run something in a forked child; its exit code, or -9 when it hangs."""
    # A Kafka client that an earlier test has left must not be destroyed in the child,
    # where its threads do not exist.
    gc.collect()
    child = multiprocessing.get_context("fork").Process(target=body)
    child.start()
    child.join(PATIENCE)
    child.kill()
    child.join()
    return child.exitcode


def forget_connections() -> None:
    """As a forking server does: the parent's sessions are not the child's."""
    for alias in connections:
        connections[alias].connection = None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_stashes_beside_a_running_harvester(
    harvester: Harvester, topics: Topics, topic: str
) -> None:
    def child() -> None:
        forget_connections()
        assert not harvester.is_alive
        harvester.stop()
        assert harvester.join()
        send_one(topic)

    with harvester:
        send_one(topic)
        eventually(is_empty)
        assert in_child(child) == 0
        eventually(lambda: is_empty() and len(topics.read(topic)) == 2)
        assert harvester.is_alive


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_harvester_made_before_a_fork_runs_in_the_child(
    harvester: Harvester, topics: Topics, topic: str
) -> None:
    def child() -> None:
        forget_connections()
        with harvester:
            eventually(is_empty)

    send_one(topic)
    assert in_child(child) == 0
    assert len(topics.read(topic)) == 1
    assert not harvester.is_alive
