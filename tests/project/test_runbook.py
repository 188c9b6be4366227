"""The runbook has every warning of the log, and every alert."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RUNBOOK = ROOT / "docs/operations/runbook.md"
ALERTS = ROOT / "docs/operations/alerts.yaml"
PACKAGE = ROOT / "django_outbox"

NO_LINES = {"pipeline", "devstack", "jars", "standalone"}
"""Packages whose users watch the terminal: no service that somebody is on call for."""

PLACEHOLDER = re.compile(r"%(?:\.\d+)?[a-z]|\{[^}]*\}")


def lines() -> Iterator[tuple[str, str]]:
    """Yield where a warning is logged, and its text with … for what varies."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if where.parts[0] in NO_LINES:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and (text := logged(node)):
                shown = PLACEHOLDER.sub("…", text).replace("……", "…")
                if re.search(r"\w", shown):
                    yield f"{where}:{node.lineno}", shown


def logged(call: ast.Call) -> str | None:
    """Return the text that a call logs at WARNING or above, if it is constant."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
    place = {"warning": 0, "error": 0, "exception": 0, "report": 0, "_warn": 1}
    if name == "log":
        if "INFO" in ast.unparse(call.args[0]):
            return None
        place["log"] = 1
    if name not in place or len(call.args) <= place[name]:
        return None
    owner = ast.unparse(call.func).rpartition(".")[0]
    if owner not in {"logger", "self", "self._sender", ""}:
        return None
    text = call.args[place[name]]
    is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
    return text.value if is_text else None  # type: ignore[attr-defined]


LINES = list(lines())


def test_lines_are_found() -> None:
    texts = [text for _, text in LINES]
    assert "Thread … failed" in texts
    assert "Cannot settle a row, retrying it apart" in texts
    assert len(texts) > 35


@pytest.mark.parametrize(("where", "text"), LINES, ids=[where for where, _ in LINES])
def test_the_runbook_has_the_line(where: str, text: str) -> None:
    page = RUNBOOK.read_text("utf-8")
    shown = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert any(text in line for line in shown), text


def test_the_runbook_has_no_line_that_is_never_logged() -> None:
    page = RUNBOOK.read_text("utf-8")
    texts = [text for _, text in LINES]
    shown = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert [line for line in shown if not any(text in line for text in texts)] == []


RULES = {
    rule["alert"]: rule["annotations"]
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    for rule in group["rules"]
}


def entries() -> dict[str, str]:
    """Return the text of each alert's section by the alert's name."""
    page = (
        RUNBOOK.read_text("utf-8").partition("\n## Alerts\n")[2].partition("\n## ")[0]
    )
    _, *parts = re.split(r"^### (\w+)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def test_alerts_are_found() -> None:
    assert len(RULES) > 15


@pytest.mark.parametrize("alert", RULES)
def test_the_runbook_has_the_alert(alert: str) -> None:
    assert len(entries().get(alert, "").split()) > 8


def test_the_runbook_has_no_alert_that_never_fires() -> None:
    assert set(entries()) - set(RULES) == set()


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_links_to_its_entry(alert: str) -> None:
    path, _, anchor = RULES[alert]["runbook_url"].partition("#")
    assert path.endswith("/blob/main/docs/operations/runbook.md")
    assert anchor == alert.lower()
