"""Every version that the project demands has its reason in the docs."""

from __future__ import annotations

import re
import tomllib

from .checkout import ROOT

TOOLS = {"dev"}
"""Extras of contributors: their floors bind nobody who installs the package."""


def declared() -> set[str]:
    """The requirements of the package and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    return {
        requirement
        for listed in (
            project["dependencies"],
            *(extras[extra] for extra in extras if extra not in TOOLS),
        )
        for requirement in listed
        if not requirement.startswith(project["name"])
    }


def explained() -> dict[str, str]:
    """The table of floors: requirement and reason."""
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text("utf-8")
    section = page.partition("\n## Floors\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+) \|$", section, re.MULTILINE)
    return {
        requirement: reason
        for cell, reason in rows
        for requirement in re.findall(r"`([^`]+)`", cell)
    }


def test_the_table_has_each_requirement_with_a_reason() -> None:
    table = explained()
    assert set(table) == declared()
    assert all(len(reason) > 10 for reason in table.values())


def test_every_requirement_has_a_floor() -> None:
    assert [r for r in declared() if not re.search(r"(>=|==)\d", r)] == []
