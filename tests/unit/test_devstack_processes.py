"""Kept processes: they do what they are told and die with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from django_outbox.devstack import DevstackError
from django_outbox.devstack import kept as kept_module
from django_outbox.devstack.kept import KeptProcess
from django_outbox.devstack.waiting import StallDetector, Stalled
from tests.machine import IN_BACKGROUND

FOREVER = ["sleep", "1000"]

OWNER = """
import os, signal, sys
# A shell's background job ignores it, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from django_outbox.devstack.kept import KeptProcess
kept = KeptProcess("test", ending=signal.SIGTERM)
kept.start(["sleep", "1000"])
child = 0
{then}
print(kept._pid, kept.folder, child, flush=True)
signal.pause()
"""


@pytest.fixture
def kept() -> Iterator[KeptProcess]:
    process = KeptProcess("test", ending=signal.SIGTERM)
    yield process
    process.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        os.sched_yield()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_owner(
    then: str = "", *, shell: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[str], int, Path, int]:
    """A process that owns a kept one; that one's pid and folder; a child's pid."""
    owner = subprocess.Popen(
        [*shell, sys.executable, "-c", OWNER.format(then=then)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout
    pid, folder, child = owner.stdout.readline().split()
    owner.stdout.close()
    return owner, int(pid), Path(folder), int(child)


@pytest.mark.parametrize("shell", [(), IN_BACKGROUND], ids=["", "in background"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_process_whose_owner_is_killed(
    number: signal.Signals, shell: tuple[str, ...]
) -> None:
    owner, pid, folder, _ = start_owner(shell=shell)
    owner.send_signal(number)
    owner.wait()
    wait_for(lambda: not is_running(pid) and not folder.exists())


def test_nothing_is_left_when_the_owner_ends_without_a_word() -> None:
    owner, pid, folder, _ = start_owner("signal.pause = lambda: None")
    assert owner.wait() == 0
    wait_for(lambda: not is_running(pid) and not folder.exists())


def test_a_forked_child_of_the_owner_does_not_keep_its_servers_alive() -> None:
    owner, pid, folder, child = start_owner("child = os.fork() or signal.pause()")
    try:
        owner.kill()
        owner.wait()
        wait_for(lambda: not is_running(pid) and not folder.exists())
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_copy_of_the_pipe_does_not_keep_a_closed_server_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_module, "PATIENCE", 0.1)
    process = KeptProcess("test", ending=signal.SIGTERM)
    process.start(FOREVER)
    pid = process._pid
    assert pid is not None
    copy = os.dup(process._commands.fileno())
    try:
        process.close()
    finally:
        os.close(copy)
    assert not process.folder.exists()
    assert not is_running(pid)


def test_a_process_that_ignores_its_signal_is_killed() -> None:
    kept = KeptProcess("test", ending=signal.SIGCONT)
    kept.start(FOREVER)
    pid = kept._pid
    assert pid
    kept.close()
    assert not is_running(pid)


def test_close_removes_the_folder_and_may_be_called_twice(kept: KeptProcess) -> None:
    kept.start(FOREVER)
    kept.close()
    kept.close()
    assert not kept.folder.exists()
    with pytest.raises(DevstackError, match="closed"):
        kept.start(FOREVER)


def test_a_signal_reaches_the_process_and_its_children(kept: KeptProcess) -> None:
    kept.start(["sh", "-c", "sleep 1000; :"])
    kept.signal(signal.SIGTERM)
    assert kept.wait(timeout=10) == -signal.SIGTERM
    assert not kept.is_running()


def test_one_process_follows_another_in_the_same_folder(kept: KeptProcess) -> None:
    kept.run(["touch", "data"])
    kept.run(["ls", "data"])
    assert (kept.folder / "data").exists()


def test_an_error_quotes_what_the_process_printed(kept: KeptProcess) -> None:
    with pytest.raises(DevstackError, match=r"failed with code 3(.|\n)*no such luck"):
        kept.run(["sh", "-c", "echo no such luck; exit 3"])


def test_a_command_is_heard_while_it_runs(kept: KeptProcess) -> None:
    kept.run(["echo", "of another command"])
    lines: list[str] = []
    kept.run(["sh", "-c", "echo one; echo two"], progress=lines.append)
    assert lines == ["one", "two"]


def test_a_command_that_does_nothing_any_more_is_given_up(
    kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(StallDetector, patience=0.5)
    monkeypatch.setattr(kept_module, "StallDetector", impatient)
    with pytest.raises(Stalled, match=r"a nap does nothing any more(.|\n)*good night"):
        kept.run(["sh", "-c", "echo good night; sleep 1000"], name="a nap")


def test_a_slow_command_is_waited_for_while_it_says_something(
    kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(StallDetector, patience=1.5)
    monkeypatch.setattr(kept_module, "StallDetector", impatient)
    kept.run(["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"])


def test_a_command_that_is_closed_in_the_middle_has_not_succeeded(
    kept: KeptProcess,
) -> None:
    def close(_: str) -> None:
        threading.Thread(target=kept.close).start()

    with pytest.raises(DevstackError, match=r"closed|code -15"):
        kept.run(["sh", "-c", "echo begun; sleep 1000"], progress=close)


def test_a_command_that_is_closed_at_its_end_has_not_succeeded(
    kept: KeptProcess,
) -> None:
    with pytest.raises(DevstackError, match="closed"):
        kept.run(["echo", "ended"], progress=lambda _: kept.close())


def test_a_command_whose_end_was_read_before_the_close_has_not_succeeded(
    kept: KeptProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short command's pid and exit code may arrive in one read."""

    def read_ahead(_: float) -> bool:
        kept._unread = kept._unread or kept._answers.read(4096)
        return True

    monkeypatch.setattr(kept, "_is_answer_there", read_ahead)
    with pytest.raises(DevstackError, match="closed"):
        kept.run(["echo", "ended"], progress=lambda _: kept.close())


def test_what_a_command_has_started_ends_with_it() -> None:
    kept = KeptProcess("test", ending=signal.SIGKILL)
    kept.start(["sh", "-c", "sleep 1000 & echo $! >child; wait"])
    child = kept.folder / "child"
    wait_for(lambda: child.exists() and child.read_text().endswith("\n"))
    pid = int(child.read_text())
    kept.close()
    wait_for(lambda: not is_running(pid))


def test_a_program_that_is_not_there_is_an_error_and_not_the_end(
    kept: KeptProcess,
) -> None:
    with pytest.raises(DevstackError, match="/no/such/program cannot be started"):
        kept.start(["/no/such/program"])
    kept.run(["true"])
