"""Links between the pages lead to pages and to headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .checkout import ROOT, files

DOCS = ROOT / "docs"
PAGES = sorted(p for p in files() if p.suffix == ".md" and DOCS in p.parents)

CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = CODE.sub("", page.read_text("utf-8"))
    return {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for path, anchor in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_every_term_of_the_glossary_has_one_sentence_and_a_link() -> None:
    page = (DOCS / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", page, re.MULTILINE)[1:]
    terms = [term.lower().partition(",")[0] for term, _ in rows]
    assert len(terms) > 40
    assert terms == sorted(terms)
    bad = [
        t for t, meaning in rows if not re.search(r": \[[^\]]+\]\([^)]+\)$", meaning)
    ]
    assert bad == []
    assert [term for term, meaning in rows if ". " in meaning.partition(": [")[0]] == []


def test_every_file_of_where_is_what_exists() -> None:
    page = (DOCS / "contributing.md").read_text("utf-8")
    section = page.partition("\n## Where is what\n")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/]+\.(?:py|sql))`", section)
    assert len(named) >= 20
    assert [
        name for name in named if not (ROOT / "django_outbox" / name).is_file()
    ] == []
