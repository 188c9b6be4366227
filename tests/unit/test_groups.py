"""How the processes of a run share out its tests."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests import groups
from tests.project.checkout import ROOT


@pytest.mark.parametrize("name", groups.ALONE)
def test_each_test_that_runs_alone_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    assert f"def {function}" in (ROOT / file).read_text("utf-8")


def test_those_that_run_alone_are_the_last_of_one_process() -> None:
    folders = ("simulation", "unit", "pipeline")
    others = [f"tests/{folder}/test_x.py::test" for folder in folders]
    ids = [*groups.ALONE, *others]
    assert len({groups.group(test) for test in groups.ALONE}) == 1
    assert len({groups.group(test) for test in ids}) == 4

    items = [SimpleNamespace(nodeid=test) for test in ids]
    groups.sort(items)  # type: ignore[arg-type]
    assert [item.nodeid for item in items] == [*reversed(others), *groups.ALONE]
