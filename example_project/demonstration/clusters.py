"""
Several clusters at work: `demo.py --clusters 3`.

Each cluster has a database server, two harvesters and a writer. The servers
replicate to each other, and all share one Kafka. The harvesters of one cluster
are killed while its writer continues; the next cluster takes over its records
until the killed harvesters are restarted.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from rich.console import Console

from django_outbox.clock import boottime_ns
from django_outbox.devstack import devstack
from django_outbox.devstack.replication import Replicas
from django_outbox.devstack.stack import PRIVATE

from .board import Board, ClusterState
from .verdict import Row, in_time, print_verdict
from .workers import MANAGE, Workers

if TYPE_CHECKING:
    from .traffic import Tally, Writer

SOURCE: Final = "shop"

MAXIMUM_DELAY: Final = 9.0
"""Seconds before the next cluster takes over; an election takes up to 8 seconds."""

MARGIN: Final = 4.0
"""Additional seconds that a takeover may take."""

TIMING: Final = {
    "OUTBOX_DRAIN_TIMEOUT": "2",
    "OUTBOX_MAXIMUM_DELAY": str(MAXIMUM_DELAY),
}

KILLED: Final = 1
"""The cluster whose harvesters are killed."""


def show_clusters(*, count: int, seconds: float, rate: float, delivery: str) -> int:
    """Run the demonstration; return the exit code."""
    console = Console()
    # Private services, because the demo counts everything in them.
    with devstack(sources=PRIVATE, progress=console.print) as stack:
        console.print(f"Starting {count} database servers with replication")
        with Replicas(count) as replicas:
            os.environ.update(stack.environment)
            os.environ.update(TIMING)
            os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
            os.environ["OUTBOX_DELIVERY"] = delivery
            os.environ["OUTBOX_SOURCE"] = SOURCE
            # So that each message shows which leader sent it.
            os.environ["OUTBOX_LEADER_HEADER"] = "1"
            os.environ["OUTBOX_CLUSTERS_COUNT"] = str(count)
            clusters = Clusters(replicas)
            console.print("Migrating each database")
            clusters.prepare()
            return clusters.demonstrate(console, stack.bootstrap_servers, seconds, rate)


class Clusters:
    """The processes, writers and counts of all clusters."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._numbers = range(len(replicas.servers))
        self._workers = [
            Workers([f"cluster-{n}-{i}" for i in (1, 2)], self._environment(n))
            for n in self._numbers
        ]
        self._writers: list[Writer] = []
        self._tally: Tally | None = None

    def prepare(self) -> None:
        """Migrate the databases, set up the clusters and start replication."""
        with ThreadPoolExecutor(len(self._numbers)) as executor:
            list(executor.map(self._migrate, self._numbers))
        self._replicas.connect()

    def demonstrate(
        self, console: Console, bootstrap_servers: str, seconds: float, rate: float
    ) -> int:
        """Run all clusters, kill the harvesters of one, and print the verdict."""
        # Django's models need the environment.
        os.environ["DATABASE_URL"] = self._replicas.urls[0]
        import django

        django.setup()
        from .traffic import Tally, Writer

        next_in_rank = (KILLED + 1) % len(self._numbers)
        dead, successor = self._workers[KILLED], self._workers[next_in_rank]
        with ExitStack() as running:
            console.print("Starting two harvesters in each cluster")
            for workers in self._workers:
                running.enter_context(workers)
            for workers in self._workers:
                workers.wait_until_ready()
            self._tally = running.enter_context(Tally(bootstrap_servers))
            urls = self._replicas.urls
            self._writers = [Writer(n, urls[n], rate=rate) for n in self._numbers]
            for writer in self._writers:
                # Registered before the start: Ctrl-C may come at any moment.
                running.callback(writer.finish)
                writer.start()
            board = Board(console, self._states)
            board.watch(seconds / 2)

            killed_at = boottime_ns()
            for name in dead.names:
                dead.kill(name)
            console.print(f"[bold]All harvesters of cluster {KILLED} killed[/bold]")
            board.wait(
                lambda: _takes_over(successor),
                what="the next cluster to take over",
                progress=successor.progress,
            )
            started = successor.said("takeover_started")[-1]
            # It may have started earlier, if the harvesters were late.
            takeover = max(0.0, (started["boottime_ns"] - killed_at) / 1e9)
            console.print(
                f"[bold]Cluster {next_in_rank} took over[/bold] after {takeover:.1f} s"
            )
            board.watch(seconds / 2)
            board.wait(
                lambda: self._states()[next_in_rank].taken_over,
                what="a record that was taken over",
                progress=successor.progress,
            )
            restarted_at = boottime_ns()
            for name in dead.names:
                dead.start(name)
            console.print(f"Harvesters of cluster {KILLED} restarted")
            board.wait(
                lambda: dead.said("leader_acquired", after_ns=restarted_at),
                what=f"a leader of cluster {KILLED}",
                progress=dead.progress,
            )
            board.watch(seconds / 4)
            for writer in self._writers:
                writer.finish()
            board.wait(
                lambda: not any(state.waiting for state in self._states()),
                what="all records to be delivered",
                progress=self._states,
            )
            self._replicas.wait_until_caught_up()
            board.show()
            rows = self._judge(takeover, next_in_rank)
        title = f"{len(self._numbers)} clusters: all harvesters of one killed"
        return print_verdict(console, title, rows)

    def _judge(self, takeover: float, next_in_rank: int) -> Sequence[Row]:
        from django_outbox.conf import settings

        assert self._tally is not None
        committed = {i for writer in self._writers for i in writer.committed}
        undone = {i for writer in self._writers for i in writer.rolled_back}
        seen = self._tally.seen
        duplicates = seen.total() - len(seen)
        changes = sum(
            len(workers.said(kind))
            for workers in self._workers
            for kind in ("leader_acquired", "takeover_started")
        ) - len(self._workers)
        most = 0 if settings.is_exactly_once else settings.MAX_IN_FLIGHT * changes
        lost, phantoms = len(committed - set(seen)), len(undone & set(seen))
        states = {state.number: state for state in self._states()}
        others = sum(s.taken_over for n, s in states.items() if n != next_in_rank)
        successor = states[next_in_rank].taken_over
        latest = MAXIMUM_DELAY + MARGIN
        return [
            ("committed", f"{len(committed):,}", None),
            ("delivered", f"{len(seen):,}", set(seen) == committed),
            ("lost", f"{lost:,}", lost == 0),
            ("rolled back, yet delivered", f"{phantoms:,}", phantoms == 0),
            (
                "out of order, for a key of a cluster",
                f"{self._tally.out_of_order:,}",
                self._tally.out_of_order == 0,
            ),
            (f"duplicates (at most {most:,})", f"{duplicates:,}", duplicates <= most),
            (
                f"taken over by the next, {next_in_rank}",
                f"{successor:,}",
                successor > 0,
            ),
            # A cluster that is late by more than the delay counts as dead.
            ("taken over by any other", f"{others:,}", in_time(others, 0)),
            (
                f"takeover (at most {latest:.0f} s)",
                f"{takeover:.1f} s",
                in_time(takeover, latest),
            ),
        ]

    def _states(self) -> list[ClusterState]:
        assert self._tally is not None
        leaders = {
            event["leader_id"]: number
            for number, workers in enumerate(self._workers)
            for kind in ("leader_acquired", "leader_refreshed")
            for event in workers.said(kind)
        }
        sent = self._tally.sent(leaders)
        seen = self._tally.seen
        return [
            ClusterState(
                number=number,
                harvesters=self._workers[number].running(),
                written=len(written := list(writer.committed)),
                delivered=sum(n for (_, by), n in sent.items() if by == number),
                taken_over=sum(
                    n
                    for (source, by), n in sent.items()
                    if by == number and source != number
                ),
                waiting=sum(message_id not in seen for message_id in written),
            )
            for number, writer in enumerate(self._writers)
        ]

    def _migrate(self, number: int) -> None:
        for arguments in (
            ["migrate", "--verbosity", "0"],
            ["outbox", "cluster", "init"],
        ):
            subprocess.run(
                [sys.executable, str(MANAGE), *arguments],
                env={**os.environ, **self._environment(number)},
                stdout=subprocess.DEVNULL,
                check=True,
            )

    def _environment(self, number: int) -> dict[str, str]:
        return {
            "DATABASE_URL": self._replicas.urls[number],
            "OUTBOX_CLUSTER_ID": str(number),
        }


def _takes_over(workers: Workers) -> bool:
    started, ended = (
        len(workers.said(f"takeover_{it}")) for it in ("started", "ended")
    )
    return started > ended
