"""Counts what our code does, whatever the machine: calls, instructions, statements."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import django_outbox

PACKAGE = str(Path(django_outbox.__file__).parent)
FAKES = str(Path(PACKAGE, "testing"))


class Counted:
    """An object, each call of which is a statement."""

    def __init__(self, target: Any, statements: Counter[str]) -> None:
        self._target = target
        self._statements = statements

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._statements[name] += 1
            return found(*arguments, **options)

        return call


def calls_of(run: Callable[[], None]) -> int:
    """Count calls of our functions, and those of C's that ours make."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event in {"call", "c_call"} and _is_ours(frame):
            count += 1

    former = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(former)
    return count


def instructions_of(run: Callable[[], None]) -> int:
    """Count the bytecode instructions of our functions."""
    count = 0

    def local(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return local

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not _is_ours(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return local

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(former)
    return count


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(PACKAGE) and not name.startswith(FAKES)
