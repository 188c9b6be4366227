"""What the repository's host runs fits the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.install.interpreters import NEWEST_PYTHON, OLDEST_PYTHON, djangos

from .checkout import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_supported_version_is_tried() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    matrix = workflow["jobs"]["versions"]["strategy"]["matrix"]
    excluded = {(each["python"], each["django"]) for each in matrix["exclude"]}
    tried = {
        (python, django)
        for python in matrix["python"]
        for django in matrix["django"]
        if (python, django) not in excluded
    }

    assert tried == {
        (f"3.{minor}", django)
        for django in djangos()
        for minor in range(OLDEST_PYTHON[django], NEWEST_PYTHON + 1)
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_their_major_version(path: Path) -> None:
    uses = re.findall(r"uses: \S+@(\S+)", path.read_text("utf-8"))
    assert uses
    assert [pin for pin in uses if not re.fullmatch(r"(v|release/v)\d+", pin)] == []
