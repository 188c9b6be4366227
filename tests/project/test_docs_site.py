"""The site of the documentation is made without a warning, and has the whole API."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import django_outbox
from django_outbox import testing

from .checkout import ROOT

DOCS = ROOT / "docs"
API = (DOCS / "reference/api.md").read_text("utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-qW", "--keep-going", DOCS, target],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout
    return target


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {
        path.relative_to(DOCS).with_suffix(".html")
        for path in DOCS.rglob("*.md")
        # Fragments of the changelog are no pages.
        if "changelog.d" not in path.parts or path.name == "README.md"
    }
    assert [page for page in pages if not (site / page).is_file()] == []
    assert len(pages) > 50


def test_an_example_in_a_docstring_is_a_code_block(site: Path) -> None:
    page = (site / "reference/api.html").read_text("utf-8")
    blocks = re.findall(r'<div class="highlight-python.*?</pre>', page, re.DOTALL)
    (example,) = [block for block in blocks if ">@consumer<" in block]
    assert "billing" in example


@pytest.mark.parametrize("name", [*django_outbox.__all__, *testing.__all__])
def test_the_reference_has_every_public_name(name: str) -> None:
    documented = re.findall(r"^\.\. auto\w+:: (\w+)$", API, re.MULTILINE)
    assert name in {*documented, "__version__"}
