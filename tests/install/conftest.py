"""A copy of the checkout and the wheel that is built from it, once for the session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.project.checkout import ROOT, files

from .interpreters import pythons
from .page import Command, steps
from .terminal import Terminal, environment

QUICKSTART = ROOT / "docs" / "quickstart.md"
BUILD = "pip wheel "


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git tracks, in a folder `django-outbox`: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("stranger") / "django-outbox"
    for path in files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return copy


@pytest.fixture(scope="session")
def wheels(checkout: Path) -> Path:
    """The folder `wheels` that the quickstart's first block makes."""
    folder = checkout.parent
    variables = environment(python=pythons()[0].path, folder=folder)
    with Terminal(folder, variables) as terminal:
        for step in steps(QUICKSTART):
            assert isinstance(step, Command)
            terminal.run(step.text)
            if step.text.startswith(BUILD):
                break
    return folder / "wheels"


@pytest.fixture(scope="session")
def wheel(wheels: Path) -> Path:
    """The wheel in it."""
    (wheel,) = wheels.iterdir()
    return wheel
