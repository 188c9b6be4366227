"""Spin finds no broken promise in the models, and every rule they have is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from .checkout import ROOT

MODELS: Final = sorted((ROOT / "docs/concepts/models").glob("*.pml"))

BUGS: Final = [
    (path, bug)
    for path in MODELS
    for bug in sorted(set(re.findall(r"\bBUG_\w+", path.read_text("utf-8"))))
]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_no_promise_is_broken(path: Path, tmp_path: Path) -> None:
    report = explored(path, tmp_path)
    assert "errors: 0" in report, report
    assert "max search depth too small" not in report


@pytest.mark.parametrize(
    ("path", "bug"), BUGS, ids=lambda each: getattr(each, "stem", each)
)
def test_a_model_without_one_of_its_rules_breaks_a_promise(
    path: Path, bug: str, tmp_path: Path
) -> None:
    report = explored(path, tmp_path, f"-D{bug}")
    assert "errors: 1" in report, report
    assert "assertion violated" in report


def explored(path: Path, folder: Path, *defined: str) -> str:
    """Look at every state of a model, or end at the first error."""
    spin, compiler = shutil.which("spin"), shutil.which("cc")
    if spin is None or compiler is None:
        pytest.skip("spin or a C compiler is not installed (apt-get install spin gcc)")
    run(spin, "-a", *defined, str(path), folder=folder)
    # States are stored packed: all of them, in a third of the memory.
    options = ["-O2", "-DSAFETY", "-DCOLLAPSE", "-w"]
    run(compiler, *options, "-o", "pan", "pan.c", folder=folder)
    # Each model ends somewhere, since it plays a few terms only: -E.
    return run(str(folder / "pan"), "-m100000", "-n", "-E", folder=folder)


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
