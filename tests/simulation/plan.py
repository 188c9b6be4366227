"""
What befalls a history: everything the dice decide before it begins.

A seed makes a `Plan`. Its profile says which kinds of faults there may be;
its weather says how often single messages and statements go wrong meanwhile.
`faults.py` carries the plan out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Probabilities, for each statement or message, that this happens to it."""

    statement_slow: float = 0.0
    """It takes up to the statement time-out; the client may freeze meanwhile."""
    statement_refused: float = 0.0
    """It has no effect, and the client learns that it failed."""
    statement_unanswered: float = 0.0
    """The client learns nothing; it takes effect, or will soon, or never does."""
    row_locked: float = 0.0
    """A row that it writes is locked for a while, by a session of somebody."""
    row_refused: float = 0.0
    """A trigger refuses one of its rows until all trouble ends."""
    request_slow: float = 0.0
    """It is under way about as long as the delivery time-out."""
    request_lost: float = 0.0
    """It never arrives; the client gives it up at the delivery time-out."""
    request_refused: float = 0.0
    """The broker refuses it for a reason that passes."""
    ack_lost: float = 0.0
    """It is in the log, and the client gives it up at the delivery time-out."""
    ack_without_offset: float = 0.0
    """It is not in the log although the broker acknowledged it (hazard H31)."""
    queue_full: float = 0.0
    """The producer takes it only later."""
    producer_broken: float = 0.0
    """The producer meets a fatal error."""
    poison: float = 0.0
    """A row is refused again and again until somebody mends its topic."""
    group_lost: float = 0.0
    """A message between a member and its group never arrives."""
    group_slow: float = 0.0
    """It takes up to twice the session time-out."""
    thread_late: float = 0.0
    """A thread that has something to do is late by up to 50 ms."""
    preempted: float = 0.0
    """A thread loses its processor for a while just after a look at clock or term."""
    begun_early: float = 0.0
    """A row has the time of a transaction that began long before it drew an id."""
    prepared: float = 0.0
    """A transaction of the application ends in two phases."""
    by_hand: float = 0.0
    """With a transaction comes a row whose id nobody has drawn."""


LEADER: Final = -1
"""In place of a node's number: whoever leads when the fault comes."""


class Fault(NamedTuple):
    """One event of the plan."""

    at: float
    """Seconds after the start."""
    kind: str
    """A name in `faults.FAULTS`."""
    node: int
    """Whom it befalls, if it befalls a single node: its number, or `LEADER`."""
    duration: float
    """Seconds."""
    cluster: int | None = None
    """Where, if there are several."""

    @property
    def whom(self) -> str:
        whom = "the leader" if self.node == LEADER else f"node{self.node}"
        return whom if self.cluster is None else f"{whom} in cluster {self.cluster}"

    def __str__(self) -> str:
        return f"{self.at:6.3f} {self.kind} of {self.whom} for {self.duration:.3f} s"


class Profile(NamedTuple):
    """Which faults a history may see."""

    name: str
    kinds: tuple[str, ...]
    weather: Weather


_GRACEFUL: Final = ("stop", "stop", "move", "rolling_restart")
_DATABASE: Final = ("table_outage", "table_cut", "table_cut", "read_only")
_BROKER: Final = ("broker_outage", "broker_cut", "fatal_error")
_PROCESS: Final = ("crash", "crash", "freeze", "freeze", "stall", "stop")
_GROUP: Final = (
    "group_cut",
    "group_cut",
    "group_failover",
    "group_noise",
    "move",
    "freeze",
)

_BAD_DATABASE: Final = Weather(
    statement_slow=0.06,
    statement_refused=0.03,
    statement_unanswered=0.1,
    row_locked=0.02,
    row_refused=0.01,
)
_BAD_BROKER: Final = Weather(
    request_slow=0.04,
    request_lost=0.03,
    request_refused=0.05,
    ack_lost=0.04,
    ack_without_offset=0.03,
    queue_full=0.03,
    producer_broken=0.004,
    poison=0.06,
)
_POISON: Final = Weather(
    statement_slow=0.1,
    statement_refused=0.15,
    statement_unanswered=0.2,
    ack_lost=0.02,
    poison=0.2,
    row_locked=0.02,
    row_refused=0.03,
)
_BAD_ROWS: Final = Weather(row_locked=0.05, row_refused=0.03)
_BAD_GROUP: Final = Weather(group_lost=0.01, group_slow=0.08, preempted=0.01)
_BAD_PROCESS: Final = Weather(
    statement_slow=0.05, request_slow=0.15, thread_late=0.02, preempted=0.01
)
_BAD: Final = Weather(
    statement_slow=0.05,
    statement_refused=0.02,
    statement_unanswered=0.03,
    row_locked=0.01,
    row_refused=0.005,
    request_slow=0.03,
    request_lost=0.02,
    request_refused=0.03,
    ack_lost=0.02,
    ack_without_offset=0.02,
    queue_full=0.02,
    producer_broken=0.002,
    poison=0.03,
    group_lost=0.005,
    group_slow=0.01,
    thread_late=0.01,
    preempted=0.01,
)

MARKING_PROFILES: Final = (
    Profile("graceful", _GRACEFUL, Weather()),
    Profile("database", (*_DATABASE, "stop", "move"), _BAD_DATABASE),
    Profile("broker", (*_BROKER, "stop", "move"), _BAD_BROKER),
    Profile("poison", (*_DATABASE, "stop", "crash", "freeze", "move"), _POISON),
    Profile("group", (*_GROUP, "stop"), _BAD_GROUP),
    Profile("process", _PROCESS, _BAD_PROCESS),
    Profile("single", ("crash", "stop", "move"), Weather()),
    Profile("rows", ("group_noise",), _BAD_ROWS),
    Profile("everything", _GRACEFUL + _DATABASE + _BROKER + _PROCESS + _GROUP, _BAD),
)
"""For the relay that marks rows."""

_LATE: Final = {"prepared": 0.3, "by_hand": 0.1}

LEDGER_PROFILES: Final = (
    Profile("graceful", _GRACEFUL, Weather(**_LATE)),
    Profile("database", (*_DATABASE, "stop", "move"), replace(_BAD_DATABASE, **_LATE)),
    Profile("broker", (*_BROKER, "stop", "move"), replace(_BAD_BROKER, poison=0.0)),
    Profile("poison", (*_DATABASE, "stop"), _POISON),
    Profile("group", (*_GROUP, "stop"), _BAD_GROUP),
    Profile("process", (*_PROCESS, "suspend"), _BAD_PROCESS),
    Profile("zombie", ("suspend", "suspend", "move", "crash"), _BAD_PROCESS),
    Profile("single", ("crash", "stop", "move"), Weather()),
    Profile("rows", ("group_noise",), _BAD_ROWS),
    Profile(
        "takeover",
        ("crash_in_commit", "crash_in_commit", "crash", "freeze", *_DATABASE),
        _BAD_DATABASE,
    ),
    Profile(
        "failover",
        ("promote", "promote", "promote", "crash", "freeze", "table_cut"),
        _BAD_DATABASE,
    ),
    Profile(
        "everything",
        (
            *(*_GRACEFUL, *_DATABASE, *_BROKER, *_PROCESS, *_GROUP),
            *("suspend", "promote", "crash_in_commit"),
        ),
        replace(_BAD, **_LATE),
    ),
)
"""For the relay that keeps a ledger."""

REMEMBERING_PROFILES: Final = tuple(
    profile
    if profile.name in {"single", "rows"}
    else profile._replace(weather=replace(profile.weather, **_LATE))
    for profile in MARKING_PROFILES
)
"""For the relay that marks in memory."""

FAILOVER_PROFILES: Final = (
    Profile("promoted", ("promote",), Weather(**_LATE)),
    Profile(
        "failover",
        ("promote", "promote", "promote", "crash", "freeze", "stop", "table_cut"),
        _BAD_DATABASE,
    ),
)
"""For marks in memory behind a pooler."""

_REPLICATION: Final = ("pause", "pause", "slow_link")
_DEATHS: Final = ("death", "death", "crash")
_UNLOCKED: Final = {"row_locked": 0.0, "row_refused": 0.0}
"""A row that stays in its table for long is rightly sent by another cluster."""
_FAIR: Final = replace(
    _BAD,
    **{name: value / 2 for name, value in asdict(_BAD).items()} | _UNLOCKED,
)

CLUSTERS_PROFILES: Final = (
    Profile("graceful", ("stop", "move", "rolling_restart"), Weather(**_LATE)),
    Profile(
        "brief",
        ("crash", "freeze", "table_outage", "broker_outage", "pause", "slow_link"),
        Weather(thread_late=0.01),
    ),
    Profile("death", ("death",), Weather()),
    Profile("deaths", ("deaths", "deaths", "loss", *_DEATHS), Weather()),
    Profile("replication", (*_REPLICATION, "loss"), Weather(**_LATE)),
    Profile("clocks", (*_DEATHS, "pause", "stop"), Weather()),
    Profile(
        "poison",
        (*_DEATHS, "table_cut", "stop"),
        replace(_POISON, poison=0.1, **_UNLOCKED),
    ),
    Profile(
        "everything",
        (
            *(*_GRACEFUL, *_DATABASE, *_BROKER, *_PROCESS, *_GROUP),
            *(*_REPLICATION, *_DEATHS, "deaths", "loss"),
        ),
        replace(_FAIR, **_LATE),
    ),
    Profile("times", ("deaths", *_DEATHS, "pause"), Weather(begun_early=0.3)),
)
"""For several clusters, whose tables replicate to each other."""

PAUSES_PROFILES: Final = (
    Profile("paused", ("operator_pause",), Weather(**_LATE)),
    Profile(
        "everything",
        (*("operator_pause",) * 8, *_DATABASE, *_BROKER, *_PROCESS),
        replace(_BAD, **_LATE),
    ),
)
"""For an operator who pauses and resumes."""

SHARDS_PROFILES: Final = (
    Profile("graceful", _GRACEFUL, Weather(**_LATE)),
    Profile("database", (*_DATABASE, "stop", "move"), replace(_BAD_DATABASE, **_LATE)),
    Profile("locks", ("crash", "stop", "freeze"), Weather(row_locked=0.6)),
    Profile("process", _PROCESS, _BAD_PROCESS),
    Profile("single", ("crash", "stop", "move"), Weather()),
    Profile(
        "failover",
        ("promote", "promote", "crash", "freeze", "table_cut"),
        _BAD_DATABASE,
    ),
    Profile(
        "everything",
        (*_GRACEFUL, *_DATABASE, *_BROKER, *_PROCESS, *_GROUP, "promote"),
        replace(_BAD, **_LATE, poison=0.0),
    ),
)
"""For several shards, whose number changes."""

SHARDS_LEDGER_PROFILES: Final = tuple(
    profile._replace(kinds=(*profile.kinds, "suspend"))
    if profile.name in {"process", "everything"}
    else profile
    for profile in SHARDS_PROFILES
)
"""The same with exactly-once."""

DELIVERIES: Final = {
    "at-least-once": MARKING_PROFILES,
    "marks-in-memory": REMEMBERING_PROFILES,
    "pipelined": REMEMBERING_PROFILES,
    "failover": FAILOVER_PROFILES,
    "exactly-once": LEDGER_PROFILES,
    "several-clusters": CLUSTERS_PROFILES,
    "paused": PAUSES_PROFILES,
    "paused-exactly-once": PAUSES_PROFILES,
    "shards": SHARDS_PROFILES,
    "shards-exactly-once": SHARDS_LEDGER_PROFILES,
}
"""By the relay: seed n plays the profile n modulo their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The course of one history, as far as it is decided beforehand."""

    seed: int
    delivery: str
    profile: str
    weather: Weather
    faults: tuple[Fault, ...]
    nodes: int
    keys: int
    writers: int
    rows: int
    backlog: int
    """Rows that are written before the first node starts."""
    max_in_flight: int
    mark_batch: int
    parks_poison: bool
    latency: float
    """Seconds that a message to or from the partitions takes at most."""
    trouble: float
    """Seconds after which all that is broken is mended."""
    max_gaps: int
    """Gaps at which a leader that marks in memory waits for open transactions."""

    @property
    def is_pipelined(self) -> bool:
        """Whether any number of records of a key may be in flight."""
        is_either = self.delivery in (
            "several-clusters",
            "failover",
            "paused",
            "shards",
        )
        return self.delivery == "pipelined" or (is_either and self.seed % 4 > 1)

    @property
    def is_patient(self) -> bool:
        """Whether a producer may try for longer than a session lasts."""
        return self.delivery == "pipelined" and self.seed // 9 % 3 == 2

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}, {self.delivery}, profile {self.profile}: "
            f"{self.nodes} nodes, "
            f"{self.writers} writers, {self.rows} rows on {self.keys} keys, "
            f"W {self.max_in_flight}, batch {self.mark_batch}, "
            f"poison {'parks' if self.parks_poison else 'blocks its key'}"
        )
        lines = [head, *(f"  {fault}" for fault in self.faults)]
        return "\n".join([*lines, f"  {self.trouble:6.3f} all is mended"])


def make_plan(seed: int, delivery: str) -> Plan:
    """Throw the dice of one seed."""
    dice = Random(seed)
    profiles = DELIVERIES[delivery]
    profile = profiles[seed % len(profiles)]
    is_single = profile.name == "single"
    trouble = dice.uniform(1.5, 3.5)
    nodes = dice.choice((1, 2, 2, 3, 3, 4))
    if is_single:
        nodes = max(nodes, 2)
    faults = sorted(
        Fault(
            at=dice.uniform(0.2, trouble),
            kind=dice.choice(profile.kinds),
            node=dice.choice((LEADER, LEADER, dice.randrange(nodes))),
            duration=dice.choice((0.05, 0.2, 0.4, 0.8, 1.6)) * dice.uniform(0.7, 1.3),
        )
        for _ in range(1 if is_single else dice.randint(1, 8))
    )
    rows = dice.randint(10, 100)
    return Plan(
        seed=seed,
        delivery=delivery,
        profile=profile.name,
        weather=profile.weather,
        faults=tuple(faults),
        nodes=nodes,
        keys=dice.randint(1, 6),
        writers=dice.randint(1, 4),
        rows=rows,
        backlog=dice.choice((0, rows // 3, rows // 2)),
        max_in_flight=dice.choice((2, 4, 8, 16)),
        mark_batch=dice.choice((3, 8, 20)),
        parks_poison=profile.name == "poison" or dice.random() < 0.5,
        latency=dice.choice((0.004, 0.02, 0.06)),
        trouble=trouble,
        max_gaps=dice.choice((2, 4, 1000)),
    )
