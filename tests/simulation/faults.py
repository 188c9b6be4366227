"""
The kinds of faults: how each one is done to a world, and how all are mended.

`plan.py` draws which, when and to whom.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from .plan import LEADER, Fault, Weather
from .timing import LEASE

if TYPE_CHECKING:
    from .node import Node
    from .world import World

Doing: TypeAlias = Callable[["World", "Node", float], object]


def _freeze(world: World, node: Node, seconds: float) -> None:
    if node.process is not None:
        node.process.freeze(seconds)


def _stall(world: World, node: Node, seconds: float) -> None:
    """Starve one thread of a process."""
    if (process := node.process) is not None:
        threads = (process.elect, process.read, process.dispatch, process.settle)
        world.dice.choice(threads).stall(seconds)


def _cut_from_kafka(world: World, node: Node, seconds: float) -> None:
    """Take the group away, and half the time the partitions too."""
    node.cut("group", seconds)
    if world.dice.random() < 0.5:
        node.cut("broker", seconds)


def _suspend(world: World, node: Node, seconds: float) -> None:
    if node.process is not None:
        node.process.suspend(seconds)
        if world.dice.random() < 0.5:
            # Of all its threads, the one that would hear of it wakes last.
            node.process.elect.stall(seconds + LEASE)


def _fatal_error(world: World, node: Node, seconds: float) -> None:
    if node.process is not None and node.process.producer is not None:
        node.process.producer.break_down()


def _crash_in_commit(world: World, node: Node, seconds: float) -> None:
    """Kill the process when its next transaction is committed."""
    if node.process is not None:
        node.process.producer.on_commit = partial(
            world.time.after,
            world.dice.uniform(0.0, 0.01),
            partial(node.crash, seconds),
        )


def _promote(world: World, node: Node, seconds: float) -> None:
    """Go on with a standby that has replicated nothing for so long."""
    standby = world.table.standby()
    world.time.after(seconds, partial(world.table.promote, standby))


def _refuse_writes(world: World, node: Node, seconds: float) -> None:
    """Let the database be read-only for everybody, and for some time."""
    now = world.time()
    if now >= world.away_until["writes"]:
        world.read_only_since = now
    end = now + 2 * seconds
    world.away_until["writes"] = max(end, world.away_until["writes"])


def _restart_all(world: World, node: Node, seconds: float) -> None:
    """Stop and start one node after the other, as a deployment does."""
    for turn, each in enumerate(world.nodes):
        world.time.after(turn * seconds, partial(each.stop, seconds / 2))


def _pause(world: World, node: Node, seconds: float) -> None:
    """Pause everything, a topic or a key; resume it later."""
    topic, key = world.dice.choice(world.writers.ordering_keys)
    kinds: tuple[tuple[str, str | None], ...] = (
        *(("", None), (topic, None), (topic, None)),
        *((topic, key), (topic, key)),
    )
    pause = world.dice.choice(kinds)
    world.trace("FAULT", f"paused: {pause}")
    world.paused.append(pause)

    def resume() -> None:
        if pause in world.paused:
            world.paused.remove(pause)

    world.time.after(seconds, resume)


def _take_away(way: str) -> Doing:
    """Make an outage for everybody."""

    def take_away(world: World, node: Node, seconds: float) -> None:
        end = world.time() + seconds
        world.away_until[way] = max(end, world.away_until[way])

    return take_away


FAULTS: Final[dict[str, Doing]] = {
    "stop": lambda _, node, seconds: node.stop(seconds),
    "rolling_restart": _restart_all,
    "crash": lambda _, node, seconds: node.crash(seconds),
    "freeze": _freeze,
    "stall": _stall,
    "table_cut": lambda _, node, seconds: node.cut("table", seconds),
    "table_outage": _take_away("table"),
    "read_only": _refuse_writes,
    "broker_cut": lambda _, node, seconds: node.cut("broker", seconds),
    "broker_outage": _take_away("broker"),
    "fatal_error": _fatal_error,
    "group_cut": _cut_from_kafka,
    "group_failover": lambda world, *_: world.group.coordinator.fail_over(),
    "group_noise": lambda world, *_: world.group.write("noise"),
    "move": lambda world, *_: world.group.coordinator.move(),
}
"""How to do each kind to a world, to a node, for so many seconds."""

LEDGER_FAULTS: Final[dict[str, Doing]] = {
    **FAULTS,
    "suspend": _suspend,
    "crash_in_commit": _crash_in_commit,
    "promote": _promote,
}
"""And what only the relay that keeps a ledger has an answer to."""


PAUSES_FAULTS: Final[dict[str, Doing]] = {
    **LEDGER_FAULTS,
    "operator_pause": _pause,
}
"""And what an operator does."""


def inject(world: World, fault: Fault) -> None:
    """Do one fault of the plan."""
    world.trace("FAULT", str(fault)[7:])
    world.count(fault.kind)
    node = world.leader if fault.node == LEADER else world.nodes[fault.node]
    world.promises.on_fault(fault, node)
    PAUSES_FAULTS[fault.kind](world, node, fault.duration)


def mend(world: World) -> None:
    """End all trouble; whoever is dead or frozen comes back by itself."""
    world.trace("FAULT", "all is mended")
    world.weather = Weather()
    world.row_trouble.end(but=1)
    world.away_until = dict.fromkeys(world.away_until, 0.0)
    world.paused.clear()
    for node in world.nodes:
        node.mend()
    # Somebody raises the limit and makes the topic, unless poison is parked.
    world.is_cured = not world.plan.parks_poison
