"""A terminal: one bash that keeps its folder and its variables between commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Self
from uuid import uuid4

BASH: Final = shutil.which("bash") or "/bin/bash"

MAX_SILENCE: Final = 600.0
"""Seconds without a line of output after which a command counts as hung."""

OURS: Final = ("PYTHON", "DJANGO_", "OUTBOX_", "DATABASE_URL", "KAFKA_", "DEVSTACK_")
"""Variables of the test session that a stranger does not have."""


def environment(*, python: Path, folder: Path, **more: str) -> dict[str, str]:
    """The variables of a stranger whose `python3` is this one."""
    programs = folder / "bin"
    programs.mkdir()
    # A link would move the standard library that the interpreter looks for.
    wrapper = programs / "python3"
    wrapper.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*OURS, "PYTEST_", "VIRTUAL_ENV", "PIP_CONSTRAINT"))
    }
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}


class Terminal:
    """Runs commands one after the other; a failed one is an AssertionError."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            [BASH, "--noprofile", "--norc"],
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the shell, and with it what still runs in it."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.close()
        self._bash.kill()
        self._bash.wait()
        self._reader.join(timeout=10)
        self._bash.stdout.close()

    def run(self, command: str) -> list[str]:
        """Run a command to its end and return the lines that it printed."""
        mark = f"done-{uuid4()}"
        assert self._bash.stdin is not None
        # The shell's own input brings the next commands: none may read it.
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\necho {mark} $?\n")
        self._bash.stdin.flush()
        printed: list[str] = []
        while True:
            line = self._next(command, printed)
            before, found, code = line.partition(mark)
            if before:
                printed.append(before)
            if found:
                assert int(code) == 0, _told(f"$ {command} failed: {code}", printed)
                return printed

    def _next(self, command: str, printed: list[str]) -> str:
        try:
            line = self._lines.get(timeout=MAX_SILENCE)
        except Empty:
            reason = f"$ {command} printed nothing for {MAX_SILENCE:.0f} s"
            raise AssertionError(_told(reason, printed)) from None
        assert line is not None, _told(f"$ {command} ended the shell", printed)
        return line

    def _read(self) -> None:
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


def _told(reason: str, printed: list[str]) -> str:
    return "\n".join([reason, *printed[-60:]])
