"""Every `pip install` of the pages works as printed."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.project.checkout import ROOT, files

from ..machine import nightly
from .interpreters import pythons
from .page import install_commands
from .terminal import Terminal, environment


def pages() -> list[Path]:
    """The README and all pages of the docs."""
    docs = ROOT / "docs"
    return [
        path
        for path in files()
        if path.suffix == ".md" and (path.parent == ROOT or docs in path.parents)
    ]


@nightly
def test_every_install_command_of_the_pages_works(wheels: Path, tmp_path: Path) -> None:
    commands = {
        command: str(page.relative_to(ROOT))
        for page in pages()
        for command in install_commands(page.read_text("utf-8"))
    }
    assert commands
    shutil.copytree(wheels, tmp_path / "wheels")
    # One environment for all of them, so that each package is installed once.
    variables = environment(python=pythons()[-1].path, folder=tmp_path)
    failures = []
    with Terminal(tmp_path, variables) as terminal:
        terminal.run("python3 -m venv .venv && . .venv/bin/activate")
        for command, page in sorted(commands.items()):
            try:
                terminal.run(command)
            except AssertionError as error:
                failures.append(f"{page}: {error}")
        assert failures == []
        terminal.run("pip check")


def test_no_page_hides_an_install_command_from_this_test() -> None:
    for page in pages():
        text = page.read_text("utf-8")
        assert text.count("pip install") == len(list(install_commands(text))), page
