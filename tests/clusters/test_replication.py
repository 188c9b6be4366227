"""Three real servers that write, purge and fall behind; nothing of it collides."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain

import pytest

from django_outbox.devstack.server_clock import libfaketime
from django_outbox.postgres.takeover_sql import IS_DUE, parameters
from tests.clusters.sites import Sites, sites
from tests.machine import require_libfaketime

ROWS = "SELECT id, cluster_id, kafka_value FROM outbox ORDER BY id"
ADVANCE = 600.0
"""Seconds by which the last server's clock is ahead, where that can be done."""


@pytest.fixture(scope="module")
def running() -> Iterator[Sites]:
    """Three clusters for all tests of this module."""
    skews = {2: ADVANCE} if libfaketime() else {}
    with sites(3, skews=skews) as running:
        yield running


@pytest.fixture
def clusters(running: Sites) -> Sites:
    """Three empty clusters that replicate to each other."""
    for number in range(running.count):
        running.sql(number, "DELETE FROM outbox")
    running.replicas.wait_until_caught_up()
    assert running.everywhere("SELECT count(*) FROM outbox") == [[0], [0], [0]]
    return running


def purge(clusters: Sites, number: int, ids: list[int]) -> None:
    clusters.sql(number, "DELETE FROM outbox WHERE id = ANY(%s)", [ids])


def test_clusters_that_write_at_once_never_draw_the_same_id(clusters: Sites) -> None:
    written = clusters.at_once(lambda number: clusters.write(number, 300))

    clusters.replicas.wait_until_caught_up()

    for number, ids in enumerate(written):
        assert {drawn % 3 for drawn in ids} == {number}
        assert ids == sorted(ids)
    first, second, third = clusters.everywhere(ROWS)
    assert first == second == third
    assert [row[0] for row in first] == sorted(chain(*written))
    assert all(drawn % 3 == cluster for drawn, cluster, _ in first)
    assert clusters.replicas.conflicts() == 0


def test_a_purge_reaches_all_whoever_does_it(clusters: Sites) -> None:
    written = clusters.at_once(lambda number: clusters.write(number, 30))
    clusters.replicas.wait_until_caught_up()

    # Each purges the rows of the next, and ten of them do so twice.
    for number in range(3):
        others = written[(number + 1) % 3]
        purge(clusters, number, others[:20])
    clusters.replicas.pause(clusters.replicas.pairs)
    for number in range(3):
        purge(clusters, number, written[0][20:])
    clusters.replicas.resume()
    clusters.replicas.wait_until_caught_up()

    left = sorted(written[1][20:] + written[2][20:])
    assert clusters.everywhere("SELECT id FROM outbox ORDER BY id") == [left] * 3
    assert clusters.replicas.conflicts() == 0


def test_what_a_leader_notes_in_a_row_stays_at_home(clusters: Sites) -> None:
    (written,) = clusters.write(0, 1)
    clusters.replicas.wait_until_caught_up()

    clusters.sql(1, "UPDATE outbox SET attempts = 3, leader_id = gen_random_uuid()")
    clusters.sql(1, "INSERT INTO outbox (kafka_topic, kafka_key) VALUES ('t', 'after')")
    clusters.replicas.wait_until_caught_up()

    look = f"SELECT attempts, leader_id IS NULL FROM outbox WHERE id = {written}"
    assert clusters.everywhere(look) == [[(0, True)], [(3, False)], [(0, True)]]


def test_a_pause_keeps_what_is_written_meanwhile(clusters: Sites) -> None:
    before = clusters.write(0, 10)
    clusters.replicas.wait_until_caught_up()

    clusters.replicas.pause(clusters.replicas.of(0))
    alone, outside = clusters.write(0, 10), clusters.write(1, 10)
    purge(clusters, 0, before[:5])
    clusters.replicas.wait_until_caught_up()
    query = "SELECT id FROM outbox ORDER BY id"
    assert clusters.everywhere(query) == [
        sorted(before[5:] + alone),
        sorted(before + outside),
        sorted(before + outside),
    ]

    clusters.replicas.resume()
    clusters.replicas.wait_until_caught_up()
    assert clusters.everywhere(query) == [sorted(before[5:] + alone + outside)] * 3
    assert clusters.replicas.conflicts() == 0


def test_a_purge_that_overtakes_its_row_leaves_the_row_there(clusters: Sites) -> None:
    """So the last of three would send it, too, when its turn comes: not lost."""
    clusters.replicas.pause([(0, 2)])
    (written,) = clusters.write(0, 1)
    clusters.replicas.wait_until_caught_up()
    purge(clusters, 1, [written])
    clusters.replicas.wait_until_caught_up()
    assert clusters.everywhere("SELECT id FROM outbox") == [[], [], []]

    clusters.replicas.resume()
    clusters.replicas.wait_until_caught_up()

    assert clusters.everywhere("SELECT id FROM outbox") == [[], [], [written]]


@pytest.mark.parametrize("fault", ["stop", "kill"])
def test_a_server_that_comes_back_brings_what_it_had_not_sent(
    clusters: Sites, fault: str
) -> None:
    clusters.replicas.pause(clusters.replicas.of(1))
    unsent = clusters.write(1, 10)
    getattr(clusters.replicas.servers[1], fault)()
    meanwhile = clusters.write(0, 10) + clusters.write(2, 10)
    clusters.replicas.wait_until_caught_up()

    clusters.replicas.servers[1].start()
    clusters.replicas.resume()
    clusters.replicas.wait_until_caught_up()

    everything = sorted(unsent + meanwhile)
    query = "SELECT id FROM outbox ORDER BY id"
    assert clusters.everywhere(query) == [everything] * 3


def test_init_leaves_a_cluster_as_it_is(clusters: Sites) -> None:
    shown = clusters.manage(1, "outbox", "cluster", "init")
    assert "nothing to do" in shown
    assert "cluster  1 of 3" in shown


def test_a_clock_that_is_ahead_shortens_the_delay(clusters: Sites) -> None:
    require_libfaketime()
    first, _, ahead = (
        moment for (moment,) in clusters.everywhere("SELECT clock_timestamp()")
    )
    assert isinstance(first, datetime)
    assert isinstance(ahead, datetime)
    assert ADVANCE - 60 < (ahead - first).total_seconds() < ADVANCE + 60

    clusters.write(0, 1)
    clusters.replicas.wait_until_caught_up()
    # By its own clock the row is ten minutes old, and rank 2 waits two delays.
    for delay, expected in ((290.0, True), (400.0, False)):
        query = f"SELECT {IS_DUE} FROM outbox AS o"
        assert clusters.sql(2, query, parameters(2, 3, delay)) == [expected]
