"""The README is read on the package index too, where nothing lies beside it."""

from __future__ import annotations

import re
import tomllib

from django_outbox.settings.options import OutboxSettings

from .checkout import ROOT

README = (ROOT / "README.md").read_text("utf-8")

TARGETS = [
    *re.findall(r"\]\(([^)]+)\)", README),
    *re.findall(r"^\[[^\]]+\]: (\S+)$", README, re.MULTILINE),
]


def homepage() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["urls"]["Homepage"])


def test_a_stranger_reads_it_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_what_a_crash_repeats_is_the_default() -> None:
    assert f"at most {OutboxSettings().MAX_IN_FLIGHT:,} records" in README


def test_every_link_is_absolute() -> None:
    assert TARGETS
    assert [target for target in TARGETS if not target.startswith("https://")] == []


def test_every_link_to_the_repository_leads_to_a_file() -> None:
    files = f"{homepage()}/blob/main/"
    paths = [
        target.removeprefix(files).partition("#")[0]
        for target in TARGETS
        if target.startswith(homepage())
    ]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_the_security_page_is_one_click_away() -> None:
    page = f"{homepage()}/blob/main/docs/operations/security.md"
    assert {page, f"{page}#report-a-vulnerability"} <= set(TARGETS)


def test_every_reference_has_its_target() -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", README, flags=re.DOTALL)
    used = set(re.findall(r"\[([^\]]+)\](?![(:])", text))
    assert used == set(re.findall(r"^\[([^\]]+)\]: ", README, re.MULTILINE))
