"""The faults of the matrix, each with what it may do at most."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django_outbox.devstack.embedded_kafka import SETTINGS
from django_outbox.election.settings import ElectionSettings

from ..harvesters import SESSION_TIMEOUT
from . import injected_faults as faults

TAKEOVER: Final = SESSION_TIMEOUT + 3
"""Seconds until a successor sends."""

DEADLINE: Final = 3.0
"""Seconds until a leader without its database resigns, where that is tested."""

BROKER_SESSION: Final = float(SETTINGS["broker.session.timeout.ms"]) / 1000
"""Seconds until another broker takes over from one that has died."""

CANDIDATE_TIMEOUT: Final = ElectionSettings(name="").candidate_timeout
"""Seconds until a process leaves that the group has chosen, and that proves nothing."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault and its bounds; what never may happen is not said here."""

    number: str
    """In the matrix."""
    text: str
    act: faults.Act
    back_within: float
    """Seconds in which nothing may come into the topic beyond the fault's own."""
    windows: int = 0
    """Multiples of W that may come twice, unless delivery is exactly-once."""
    keeps_leader: bool = False
    """No other process may become the leader."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the harvesters."""

    @property
    def name(self) -> str:
        """In the name of a test: `F2-crash_leader`."""
        return f"{self.number}-{self.act.__name__}"


FAULTS: Final = (
    Fault(
        number="F1",
        text="rolling restart of all processes (SIGTERM)",
        act=faults.restart_each,
        back_within=4,
    ),
    Fault(
        number="F2",
        text="the leader crashes (kill −9)",
        act=faults.crash_leader,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F3",
        text="a standby crashes",
        act=faults.crash_standby,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F4",
        text="the leader stands still for two sessions, and wakes up",
        act=faults.pause_leader,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F5",
        text="the leader stands still for half of `HEARTBEAT_TIMEOUT`",
        act=faults.pause_briefly,
        back_within=1,
        keeps_leader=True,
    ),
    Fault(
        number="F6",
        text="the leader gets hardly any processor time, for two sessions",
        act=faults.starve,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F7",
        text="nothing passes between leader and Kafka",
        act=faults.cut_from_kafka,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F8",
        text="requests reach Kafka, its answers are lost",
        act=faults.cut_answers_of_kafka,
        # The group may hear of the old leader for one more session.
        back_within=TAKEOVER + SESSION_TIMEOUT,
        windows=1,
    ),
    Fault(
        number="F9",
        text="all connections to Kafka are reset, five times",
        act=faults.reset_connections,
        # Each one may end a lease of this length; the same process leads again.
        back_within=TAKEOVER,
        windows=5,
        keeps_leader=True,
    ),
    Fault(
        number="F9",
        text="100 ms each way to Kafka",
        act=faults.slow_network,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F9",
        text="what goes to Kafka and back comes in pieces of 100 bytes",
        act=faults.sliced_network,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F10",
        text="nothing passes between leader and database",
        act=faults.cut_from_database,
        back_within=DEADLINE + TAKEOVER,
        windows=1,
        variables={"OUTBOX_DATABASE_DEADLINE": str(DEADLINE)},
    ),
    Fault(
        number="F11",
        text="the database crashes and starts again",
        act=faults.crash_database,
        back_within=3,
        windows=1,
    ),
    Fault(
        number="F12",
        text="all sessions of the database are ended each second, five times",
        act=faults.end_sessions,
        back_within=2,
        windows=5,
        keeps_leader=True,
    ),
    *(
        [
            Fault(
                number="F14",
                text="the disk of the table is full for 5 s (needs root)",
                act=faults.fill_disk,
                back_within=3,
                windows=1,
                keeps_leader=True,
            )
        ]
        if os.geteuid() == 0
        else []
    ),
    Fault(
        number="F15",
        text="the table is locked (`ACCESS EXCLUSIVE`) for 3 s",
        act=faults.lock_table,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F15",
        text="a transaction stays open for 10 s",
        act=faults.open_transaction,
        back_within=2,
        keeps_leader=True,
    ),
    Fault(
        number="F17",
        text=f"no broker for {faults.AWAY:g} s",
        act=faults.crash_broker,
        back_within=5,
        windows=1,
    ),
    Fault(
        number="F19",
        text="the topic has fewer replicas than `min.insync.replicas` for 5 s",
        act=faults.lack_replicas,
        back_within=3,
        windows=1,
        keeps_leader=True,
    ),
    Fault(
        number="F20",
        text='three records that are too large, with `POISON_POLICY = "park"`',
        act=faults.send_poison,
        back_within=2,
        keeps_leader=True,
        variables={"OUTBOX_POISON_POLICY": "park"},
    ),
    Fault(
        number="F24",
        text=f"{faults.DELAY:g} s each way to Kafka, for two sessions",
        act=faults.delay_for_a_while,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F24",
        text=f"{faults.DELAY:g} s each way to Kafka, until another process leads",
        act=faults.delay_until_another_leads,
        back_within=CANDIDATE_TIMEOUT + TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F30",
        text="the leader may open no file and no connection any more",
        act=faults.take_descriptors,
        back_within=TAKEOVER,
        windows=1,
    ),
    Fault(
        number="F30",
        text="the leader gets no more memory, and has to send 45 MB",
        act=faults.take_memory,
        back_within=TAKEOVER,
        windows=1,
    ),
)

BROKER_FAULTS: Final = (
    Fault(
        number="F16",
        text="one of three brokers dies, which leads a partition of the topic",
        act=faults.crash_partition_leader,
        back_within=BROKER_SESSION + 3,
        windows=1,
    ),
    Fault(
        number="F18",
        text="one of three brokers dies, which coordinates the leader group",
        act=faults.crash_coordinator,
        back_within=BROKER_SESSION + SESSION_TIMEOUT,
        windows=1,
    ),
)
"""Those that need more than one broker."""

ELSEWHERE: Final = {
    "F13": (
        "a standby that lagged behind becomes the database",
        "test_a_failover_to_a_standby_that_lagged_behind",
    ),
    "F21": (
        "a topic is deleted and created again under its consumer",
        "test_a_topic_that_is_created_again_under_a_consumer_ends_it",
    ),
    "F22": (
        "clocks are minutes apart",
        "test_a_delay_above_the_difference_keeps_every_promise",
    ),
    "F23": (
        "a receiver of a signal raises, or takes its time",
        "test_a_receiver_that_takes_its_time_holds_nothing_up",
    ),
    "F25": (
        "a leader of the past goes on inside a transaction",
        "test_a_zombie_inside_a_transaction",
    ),
    "F26": (
        "the number of shards changes: 1, 4, 2",
        "test_the_number_of_shards_changes_under_load",
    ),
    "F27": (
        "all harvesters of a cluster are dead",
        "test_the_next_in_rank_takes_over_and_the_last_stays_silent",
    ),
    "F29": (
        "a process forks when a harvester runs in it",
        "test_a_forked_child_stashes_beside_a_running_harvester",
    ),
}
"""Faults that have tests of their own: the text, and the test."""
