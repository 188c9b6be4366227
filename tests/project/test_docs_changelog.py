"""A release can fold the fragments into the changelog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .checkout import ROOT

TOWNCRIER = Path(sys.executable).with_name("towncrier")


def test_towncrier_takes_every_fragment() -> None:
    done = subprocess.run(
        [TOWNCRIER, "build", "--draft", "--version", "next"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "## next" in done.stdout


def test_the_changelog_has_the_place_for_the_next_release() -> None:
    page = (ROOT / "docs" / "changelog.md").read_text("utf-8")
    assert page.count("<!-- towncrier release notes start -->\n") == 1
