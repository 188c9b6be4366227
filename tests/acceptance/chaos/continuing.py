"""
Continues a run of all faults that was interrupted: it may take two hours.

What it has tried stays in pytest's cache, for the same commit and seeds. After a
failure the next run begins again: nothing is repeated until it is green.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ...machine import SEEDS
from ...processes import ROOT

GIT: Final = shutil.which("git") or "git"
FOLDER: Final = str(Path(__file__).parent.relative_to(ROOT))
KEY: Final = "chaos/tried"

Figures = Mapping[str, Any]
"""What a fault did: the fields of a `Proof` but the last."""


def commit() -> str:
    """Return the short id of the commit; one that ends in -dirty has changes."""
    described = subprocess.run(
        [GIT, "describe", "--always", "--exclude=*", "--dirty"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def tried(config: pytest.Config) -> dict[str, Figures]:
    """Return what an interrupted run found, by the ids of its tests."""
    if not _is_of_all(config):
        return {}
    kept = config.cache.get(KEY, None) or {}
    return kept["found"] if kept.get("run") == _run() else {}


def keep(config: pytest.Config, found: dict[str, Figures] | None) -> None:
    """Let the next run continue behind these tests; None: let it begin again."""
    if _is_of_all(config):
        is_kept = found and not commit().endswith("-dirty")
        config.cache.set(KEY, {"run": _run(), "found": found} if is_kept else None)


def _run() -> str:
    return f"{len(SEEDS)} seeds of {commit()}"


def _is_of_all(config: pytest.Config) -> bool:
    """Whether this run chooses no tests of the folder, and has a cache."""
    is_of_all = config.args == [FOLDER] and not config.option.keyword
    return is_of_all and hasattr(config, "cache")
