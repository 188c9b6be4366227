"""The Pythons of this machine and the Djangos that each of them can run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.project.checkout import ROOT

OLDEST_PYTHON: Final = {"5.2": 11, "6.0": 12, "6.1": 12}
"""For each Django of the classifiers: the first minor version of Python 3."""

NEWEST_PYTHON: Final = 14
"""The last one that these versions of Django support."""

PROBE: Final = """
import ensurepip, sys, venv
assert sys.version_info.releaselevel == "final"
print(sys.version_info[1])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """An interpreter outside any environment."""

    minor: int
    path: Path

    def __str__(self) -> str:
        return f"3.{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One Python and one Django."""

    python: Python
    django: str

    def __str__(self) -> str:
        return f"python{self.python}-django{self.django}"


def djangos() -> list[str]:
    """The versions of Django that the distribution claims to support."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    claims = "\n".join(project["classifiers"])
    return re.findall(r"^Framework :: Django :: (\d+\.\d+)$", claims, re.MULTILINE)


@cache
def pythons() -> list[Python]:
    """The interpreters found, one for each minor version, oldest first."""
    found: dict[int, Path] = {}
    for path in _candidates():
        ran = subprocess.run(
            [path, "-c", PROBE], capture_output=True, text=True, check=False
        )
        if ran.returncode == 0:
            found.setdefault(int(ran.stdout), path)
    return [
        Python(minor=minor, path=found[minor])
        for minor in sorted(found)
        if min(OLDEST_PYTHON.values()) <= minor <= NEWEST_PYTHON
    ]


def combinations() -> list[Combination]:
    """Every Python of this machine with every Django that it can run."""
    return [
        Combination(python=python, django=django)
        for python in pythons()
        for django in djangos()
        if python.minor >= OLDEST_PYTHON[django]
    ]


def _candidates() -> Iterator[Path]:
    # The Python that this environment was made of, then PATH, then pyenv.
    yield Path(getattr(sys, "_base_executable", sys.executable))
    for minor in range(min(OLDEST_PYTHON.values()), NEWEST_PYTHON + 1):
        if on_path := shutil.which(f"python3.{minor}"):
            yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/3.*/bin/python3"))
