"""What the demonstration announces, and what its verdict judges."""

from __future__ import annotations

import argparse
import runpy
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

EXAMPLE = Path(__file__).parents[2] / "example_project"
# By their paths: the example's packages are not the tests'.
_DEMO = runpy.run_path(str(EXAMPLE / "demo.py"))
_VERDICT = runpy.run_path(str(EXAMPLE / "demonstration" / "verdict.py"))


def announced(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    installed: tuple[str, ...],
    has_lake: bool,
) -> str:
    announce = _DEMO["_announce"]
    monkeypatch.setitem(
        announce.__globals__, "is_complete", lambda extra: extra in installed
    )
    announce(argparse.Namespace(seconds=20.0, clusters=None), has_lake=has_lake)
    return capsys.readouterr().out


def test_a_bare_machine_reads_sizes_and_times_before_anything_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = announced(capsys, monkeypatch, installed=(), has_lake=True)
    assert text.count(" MB of Python packages") == 2
    assert "the outbox: about 60 s" in text
    assert "the lake: about" in text


def test_without_the_lake_nothing_of_spark_is_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = announced(capsys, monkeypatch, installed=(), has_lake=False)
    assert text.count(" MB of Python packages") == 1
    assert "Spark" not in text
    assert "act 2" not in text


def test_what_is_installed_is_not_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = announced(
        capsys, monkeypatch, installed=("demo", "demo-lake"), has_lake=True
    )
    assert "MB" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--rate", "0"), ("--rate", "nan"), ("--rate", "2")),
        *(("--seconds", "-1"), ("--harvesters", "0")),
    ],
)
def test_what_cannot_be_shown_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", *arguments])
    with pytest.raises(SystemExit) as refused:
        _DEMO["main"]()
    assert refused.value.code == 2


@pytest.mark.parametrize(
    ("mark", "code"), [(True, 0), (None, 0), (_VERDICT["SLOW"], 0), (False, 1)]
)
def test_only_a_broken_promise_fails(mark: bool | str | None, code: int) -> None:
    console = Console(file=StringIO())
    rows = [("kept", "1", True), ("looked at", "2", mark)]
    assert _VERDICT["print_verdict"](console, "title", rows) == code


def test_a_slow_take_over_is_shown_as_slow_and_explained() -> None:
    file = StringIO()
    rows = [("takeover (at most 9 s)", "14.2 s", _VERDICT["in_time"](14.2, 9.0))]
    assert _VERDICT["print_verdict"](Console(file=file), "title", rows) == 0
    assert "slow" in file.getvalue()
    assert "does not break a promise" in file.getvalue()
