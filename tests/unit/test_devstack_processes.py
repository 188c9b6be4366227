"""Supervised processes: they run commands and end with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from django_outbox.devstack import DevstackError, supervised_process
from django_outbox.devstack.supervised_process import SupervisedProcess
from django_outbox.devstack.waiting import StallDetector, Stalled
from tests.machine import IN_BACKGROUND
from tests.waiting import eventually

FOREVER = ["sleep", "1000"]

OWNER = """
import os, signal, sys
# A shell's background job ignores it, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from django_outbox.devstack.supervised_process import SupervisedProcess
process = SupervisedProcess("test", ending=signal.SIGTERM)
process.start(["sleep", "1000"])
child = 0
{then}
print(process._pid, process.folder, child, flush=True)
signal.pause()
"""


@pytest.fixture
def process() -> Iterator[SupervisedProcess]:
    process = SupervisedProcess("test", ending=signal.SIGTERM)
    yield process
    process.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_owner(
    then: str = "", *, shell: tuple[str, ...] = ()
) -> tuple[subprocess.Popen[str], int, Path, int]:
    """Start an owner of a process; return it, the pid, the folder, a child's pid."""
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
    eventually(lambda: not is_running(pid) and not folder.exists())


def test_nothing_is_left_when_the_owner_ends_without_a_word() -> None:
    owner, pid, folder, _ = start_owner("signal.pause = lambda: None")
    assert owner.wait() == 0
    eventually(lambda: not is_running(pid) and not folder.exists())


def test_a_forked_child_of_the_owner_does_not_keep_its_servers_alive() -> None:
    owner, pid, folder, child = start_owner("child = os.fork() or signal.pause()")
    try:
        owner.kill()
        owner.wait()
        eventually(lambda: not is_running(pid) and not folder.exists())
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_copy_of_the_pipe_does_not_keep_a_closed_server_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervised_process, "SUPERVISOR_TIMEOUT", 0.1)
    process = SupervisedProcess("test", ending=signal.SIGTERM)
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
    process = SupervisedProcess("test", ending=signal.SIGCONT)
    process.start(FOREVER)
    pid = process._pid
    assert pid
    process.close()
    assert not is_running(pid)


def test_a_supervisor_that_cannot_begin_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DevstackError):
        SupervisedProcess("test", ending=signal.SIGTERM, user="no-such-user")
    assert "no such user: 'no-such-user'" in capfd.readouterr().err


def test_a_killed_process_takes_its_children_with_it(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one of them has ended by itself before its turn."""
    process.start(["sh", "-c", "sleep 1000; :"])
    children = psutil.Process.children
    (child,) = eventually(psutil.Process(process._pid).children)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    gone = psutil.Process(ended.pid)
    ended.wait()

    def children_and_one_more(
        self: psutil.Process, *, recursive: bool = False
    ) -> list[psutil.Process]:
        return [gone, *children(self, recursive=recursive)]

    monkeypatch.setattr(psutil.Process, "children", children_and_one_more)
    process.kill()
    eventually(lambda: not is_running(child.pid))


def test_close_removes_the_folder_and_may_be_called_twice(
    process: SupervisedProcess,
) -> None:
    process.start(FOREVER)
    process.close()
    process.close()
    assert not process.folder.exists()
    with pytest.raises(DevstackError, match="closed"):
        process.start(FOREVER)


def test_a_signal_reaches_the_process_and_its_children(
    process: SupervisedProcess,
) -> None:
    process.start(["sh", "-c", "sleep 1000; :"])
    process.signal(signal.SIGTERM)
    assert process.wait(timeout=10) == -signal.SIGTERM
    assert not process.is_running()


def test_one_process_follows_another_in_the_same_folder(
    process: SupervisedProcess,
) -> None:
    process.run(["touch", "data"])
    process.run(["ls", "data"])
    assert (process.folder / "data").exists()


def test_an_error_quotes_what_the_process_printed(process: SupervisedProcess) -> None:
    with pytest.raises(DevstackError, match=r"failed with code 3(.|\n)*no such luck"):
        process.run(["sh", "-c", "echo no such luck; exit 3"])


def test_a_command_is_heard_while_it_runs(process: SupervisedProcess) -> None:
    process.run(["echo", "of another command"])
    lines: list[str] = []
    process.run(["sh", "-c", "echo one; echo two"], progress=lines.append)
    assert lines == ["one", "two"]


def test_a_command_that_does_nothing_any_more_is_given_up(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(StallDetector, timeout=0.5)
    monkeypatch.setattr(supervised_process, "StallDetector", impatient)
    with pytest.raises(Stalled, match=r"a nap makes no progress(.|\n)*good night"):
        process.run(["sh", "-c", "echo good night; sleep 1000"], name="a nap")


def test_a_slow_command_is_waited_for_while_it_says_something(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(StallDetector, timeout=1.5)
    monkeypatch.setattr(supervised_process, "StallDetector", impatient)
    process.run(["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done"])


def test_a_command_that_is_closed_in_the_middle_has_not_succeeded(
    process: SupervisedProcess,
) -> None:
    def close(_: str) -> None:
        threading.Thread(target=process.close).start()

    with pytest.raises(DevstackError, match=r"closed|code -15"):
        process.run(["sh", "-c", "echo begun; sleep 1000"], progress=close)


def test_a_command_that_is_closed_at_its_end_has_not_succeeded(
    process: SupervisedProcess,
) -> None:
    with pytest.raises(DevstackError, match="closed"):
        process.run(["echo", "ended"], progress=lambda _: process.close())


def test_a_command_whose_end_was_read_before_the_close_has_not_succeeded(
    process: SupervisedProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short command's pid and exit code may arrive in one read."""

    def read_ahead(_: float) -> bool:
        process._unread = process._unread or process._answers.read(4096)
        return True

    monkeypatch.setattr(process, "_is_answer_there", read_ahead)
    with pytest.raises(DevstackError, match="closed"):
        process.run(["echo", "ended"], progress=lambda _: process.close())


def test_what_a_command_has_started_ends_with_it() -> None:
    process = SupervisedProcess("test", ending=signal.SIGKILL)
    process.start(["sh", "-c", "sleep 1000 & echo $! >child; wait"])
    child = process.folder / "child"
    eventually(lambda: child.exists() and child.read_text().endswith("\n"))
    pid = int(child.read_text())
    process.close()
    eventually(lambda: not is_running(pid))


def test_a_program_that_is_not_there_is_an_error_and_not_the_end(
    process: SupervisedProcess,
) -> None:
    with pytest.raises(DevstackError, match="/no/such/program cannot be started"):
        process.start(["/no/such/program"])
    process.run(["true"])
