"""Sizes, names and places of the library's modules."""

from __future__ import annotations

import re
import statistics

import pytest

from .checkout import ROOT, files, package_modules

CAP = 400
MEDIAN = 130

NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "base", "manager"}
NAMED_BY_DJANGO = {"django_outbox/contrib/postgresql/base.py"}
"""Where Django looks for a database backend."""

TOP_LEVEL = {
    *("django_outbox", "docs", "example_project", "tests"),
    *("LICENSE", "README.md", "pyproject.toml"),
}

REGISTRIES = re.compile(
    r"\b(pypi|pythonhosted|npmjs|crates|maven(\.apache)?|golang)\.(org|io|com)\b"
    r"|\brepo\d?\.maven\b|\bcentral\.sonatype\b"
)


def lines(text: str) -> int:
    return len(text.splitlines())


def test_no_module_is_longer_than_one_concept_needs() -> None:
    sizes = {path: lines(path.read_text("utf-8")) for path in package_modules()}
    too_long = {
        str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > CAP
    }
    assert too_long == {}


def test_half_of_the_modules_are_short() -> None:
    sizes = [
        lines(path.read_text("utf-8"))
        for path in package_modules()
        if path.name != "__init__.py"
    ]
    assert statistics.median(sizes) <= MEDIAN


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {
        str(path.relative_to(ROOT))
        for path in package_modules()
        if {path.stem, path.parent.name} & NAMES_THAT_SAY_NOTHING
    }
    assert names == NAMED_BY_DJANGO


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in package_modules()
        if (text := path.read_text("utf-8").strip())
        and not text.removeprefix("#!").startswith(('"""', 'r"""'))
    ]
    assert silent == []


def test_nothing_new_lies_at_the_top_level() -> None:
    found = {path.relative_to(ROOT).parts[0] for path in files()}
    assert {name for name in found if not name.startswith(".")} <= TOP_LEVEL


@pytest.mark.parametrize("suffix", [".py", ".toml", ".txt", ".md", ".json", ".sql", ""])
def test_no_file_names_the_host_of_a_package_registry(suffix: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        if path.suffix == suffix and path.name != "test_architecture.py"
        for number, line in enumerate(
            path.read_text("utf-8", errors="replace").splitlines(), start=1
        )
        if REGISTRIES.search(line)
    ]
    assert found == []


def test_what_runs_before_the_environment_stands_is_executable_by_all() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111 == 0o111
