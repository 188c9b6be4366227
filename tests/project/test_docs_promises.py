"""Each promise of docs/promises.md, and each proof, names tests that exist."""

from __future__ import annotations

import ast
import re

from .checkout import ROOT

PAGE = (ROOT / "docs" / "promises.md").read_text("utf-8")
PROOF = (ROOT / "docs" / "operations" / "proof.md").read_text("utf-8")
FOLDERS = ("acceptance", "clusters", "integration", "pipeline", "simulation")


def promises() -> list[list[str]]:
    """The rows of the page's tables: promise, when, proof."""
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    return [list(row) for row in rows if row[0] != "promise"]


def names_of_tests() -> set[str]:
    """The names of all tests that real servers, or a simulator, take part in."""
    return {
        node.name
        for folder in FOLDERS
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_promise_has_its_proof() -> None:
    rows = promises()
    assert len(rows) >= 35
    assert [
        row for row in rows if "`test_" not in row[2] and "auditor" not in row[2]
    ] == []


def test_every_test_that_proves_a_promise_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE + PROOF))
    assert named - names_of_tests() == set()
