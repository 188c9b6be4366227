"""
A lease on the lake: of two runs, the second one is refused.

The lease is a Delta table without rows. The name of its only column says who
holds the lake. Renaming a column fails unless it still has the old name, and of
two renames at once Delta's log accepts one: that makes a rename a compare-and-set,
on every storage that Delta can write to from several machines, and through Spark
Connect. A rename changes only metadata. It starts no Spark job, so it never waits
behind the tasks of a batch, and it costs a quarter of a second.

A holder writes nothing as long as nobody asks; it only looks at the table. A
contender asks by adding a token to the holder's name, and the holder removes it.
If the same question stands for `EXPIRY`, by the contender's monotonic clock, the
holder is dead and the contender takes its place. No clock of one machine is ever
compared with the clock of another.

A holder that finds another name in the table stops. Until it has looked, both
may write: the tables stay right then, since appends carry the number of their
batch, but one of the two queries fails.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.errors import AnalysisException

from ...exceptions import LakeInUse
from .conflicts import retry_conflicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline_settings import PipelineSettings

CHECK_INTERVAL: Final = 5.0
"""Seconds between two looks of a holder at the table."""

EXPIRY: Final = 30.0
"""Seconds after which a holder that has not answered is dead."""

POLL_INTERVAL: Final = 0.5
"""Seconds between two looks of a contender that waits for an answer."""

RUN: Final = "_lease"
"""The lease of what fills the tables."""

MAINTENANCE: Final = "_maintenance"
"""The lease of what rewrites their files."""

FREE: Final = "free"
"""Name of the column when nobody holds the lake."""

_PROPERTIES: Final = {
    # Only tables with mapped columns can rename one, and only their names may
    # have any characters.
    "delta.columnMapping.mode": "name",
    # Each run makes two commits: keep few, and sum them up less often.
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


def machine() -> str:
    """Return an id of this boot and its pid namespace; empty if there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    # The name before it, in parentheses, may contain anything.
    state, *others = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else others[18]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The run that holds the lake; also the name of the table's column, as JSON."""

    purpose: str
    """The command that it runs."""
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    since: str = field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds")
    )
    """When it took the lake, by its own clock, for people."""
    machine: str = field(default_factory=machine)
    """Where `pid` has a meaning."""
    started: str = field(default_factory=lambda: start_of(os.getpid()))
    """Distinguishes the process from a later one with the same pid."""
    token: str = field(default_factory=lambda: uuid4().hex)
    """No two runs have the same."""
    asked: str = ""
    """Token of the contender who wants to know whether it is alive; or empty."""

    def __str__(self) -> str:
        return f"`{self.purpose}` on {self.host}, pid {self.pid}, since {self.since}"

    def has_ended(self) -> bool:
        """Whether its process is known to be gone; only seen on the same machine."""
        here = machine()
        return (
            here != "" and self.machine == here and start_of(self.pid) != self.started
        )


class Register:
    """The table, as a cell with one value that can be compared and set."""

    def __init__(
        self, spark: SparkSession, settings: PipelineSettings, name: str = RUN
    ) -> None:
        self._spark = spark
        self._path = settings.table_path(name)

    def read(self) -> Holder | None:
        """Return the holder; None if the lake is free. Creates a missing table."""
        try:
            (name,) = self._columns()
        except AnalysisException:
            pairs = ", ".join(
                f"'{key}' = '{text}'" for key, text in _PROPERTIES.items()
            )
            statement = (
                f"CREATE TABLE IF NOT EXISTS delta.`{self._path}` ({FREE} INT)"
                f" USING delta TBLPROPERTIES ({pairs})"
            )
            retry_conflicts(lambda: self._spark.sql(statement))
            (name,) = self._columns()
        return None if name == FREE else Holder(**json.loads(name))

    def swap(self, old: Holder | None, new: Holder | None) -> bool:
        """Set the holder if it is still `old`; return whether it was."""
        statement = (
            f"ALTER TABLE delta.`{self._path}` RENAME COLUMN"
            f" {_quoted(old)} TO {_quoted(new)}"
        )
        for is_last in (False, False, True):
            try:
                self._spark.sql(statement)
            except Exception:
                # The table knows best: the error's class depends on the moment of
                # the other commit, and one may follow the own commit.
                if (found := self.read()) != old:
                    return found == new
                # Either a real error, or others have set it to `old` again.
                if is_last:
                    raise
            else:
                break
        return True

    def _columns(self) -> list[str]:
        return self._spark.read.format("delta").load(self._path).columns


def _quoted(holder: Holder | None) -> str:
    name = FREE if holder is None else json.dumps(asdict(holder))
    return f"`{name.replace('`', '``')}`"


class Keeper(threading.Thread):
    """Answers contenders, and notices when the lease is lost."""

    def __init__(
        self, register: Register, holder: Holder, on_loss: Callable[[], None]
    ) -> None:
        super().__init__(name="lake-lease", daemon=True)
        self.ended = threading.Event()
        self.error: LakeInUse | None = None
        """Why the lease is lost; None while it is held."""
        self._register, self._holder, self._on_loss = register, holder, on_loss

    def check(self) -> None:
        """Look at the lease; raise `LakeInUse` if it is lost."""
        self.error = self.error or self._look()
        self.raise_loss()

    def raise_loss(self) -> None:
        """Raise `LakeInUse` if the lease is known to be lost."""
        if self.error:
            raise self.error

    def end(self) -> None:
        """Stop looking at the lease."""
        self.ended.set()
        self.join()

    def run(self) -> None:
        """Look at the lease until `ended` is set, or it is lost."""
        good = time.monotonic()
        while not self.ended.wait(CHECK_INTERVAL):
            began = time.monotonic()
            try:
                self.error = self._look()
                good = began
            except Exception as error:  # noqa: BLE001 - storage may be unavailable
                # A contender may have asked right after the last look.
                if time.monotonic() - good >= EXPIRY - CHECK_INTERVAL:
                    self.error = LakeInUse(
                        f"{self._holder} could not look at its lease for"
                        f" {time.monotonic() - good:.0f} s, so another run may have"
                        f" taken the lake: {error}"
                    )
            if self.error:
                self._on_loss()
                return

    def _look(self) -> LakeInUse | None:
        found = self._register.read()
        if found is None or found.token != self._holder.token:
            return LakeInUse(
                f"{self._holder} has lost the lake to {found or 'a run that ended'}:"
                f" it did not answer for {EXPIRY:.0f} s. Start it again."
            )
        if found.asked:
            self._register.swap(found, self._holder)
        return None


@contextmanager
def lease(
    spark: SparkSession,
    settings: PipelineSettings,
    *,
    purpose: str,
    on_loss: Callable[[], None] = lambda: None,
    waiting: Callable[[str], None] = lambda _: None,
    name: str = RUN,
) -> Iterator[Keeper]:
    """
    Hold the lake for a block of code; release it afterwards.

    The block may call the keeper's `check()` before a step that nobody else may
    interfere with.

    Args:
        purpose: The command, for the message to other runs.
        on_loss: Called on another thread when another run has taken the lake;
            should end the block.
        waiting: Called with one line when a holder is slow to answer.
        name: The lease to hold.

    Raises:
        LakeInUse: another run holds the lake (before the block), or has taken it
            (after the block, instead of the block's own error).
    """
    register = Register(spark, settings, name)
    holder = _take(register, settings, Holder(purpose=purpose), waiting)
    keeper = Keeper(register, holder, on_loss)
    keeper.start()
    try:
        yield keeper
    except BaseException:
        keeper.end()
        keeper.raise_loss()
        with suppress(Exception):
            _release(register, holder)
        raise
    keeper.end()
    keeper.raise_loss()
    _release(register, holder)


def _release(register: Register, holder: Holder) -> None:
    """Free the lake, also while a contender asks."""
    found: Holder | None = holder
    while (
        found is not None
        and found.token == holder.token
        and not register.swap(found, None)
    ):
        found = register.read()


def _take(
    register: Register,
    settings: PipelineSettings,
    mine: Holder,
    waiting: Callable[[str], None],
) -> Holder:
    seen: Holder | None = None
    since, is_quiet = 0.0, True
    while True:
        found = register.read()
        if found != seen:
            # The question was answered, or another contender was faster.
            if seen is not None and seen.asked and found is not None:
                raise LakeInUse(
                    f"{settings.lake} is in use: {found}. Wait until it has ended, or"
                    f" end it; a killed run loses the lake after {EXPIRY:.0f} s."
                )
            seen, since = found, time.monotonic()
        if (
            found is None
            or found.has_ended()
            or (found.asked and time.monotonic() - since >= EXPIRY)
        ):
            if register.swap(found, mine):
                return mine
        elif not found.asked:
            question = replace(found, asked=mine.token)
            if register.swap(found, question):
                seen, since = question, time.monotonic()
        else:
            if is_quiet and time.monotonic() - since > 2 * CHECK_INTERVAL:
                is_quiet = False
                waiting(f"{found} does not answer. Waiting up to {EXPIRY:.0f} s.")
            time.sleep(POLL_INTERVAL)
