"""What a release uploads: complete, and accepted by the package index."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from django_outbox.exceptions import DISTRIBUTION
from tests.project.checkout import ROOT, files

from .interpreters import pythons
from .page import commands_of
from .terminal import Terminal, environment

PAGE: Final = ROOT / "docs" / "contributing.md"


@pytest.fixture(scope="module")
def release(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the release's steps were taken, but for the tests."""
    home = tmp_path_factory.mktemp("release")
    folder = shutil.copytree(
        checkout, home / "checkout", ignore=shutil.ignore_patterns("build", "*.egg-*")
    )
    (folder / ".venv").symlink_to(sys.prefix)
    variables = environment(python=pythons()[0].path, folder=home)
    section = PAGE.read_text("utf-8").partition("\n## A release\n")[2]
    tests, *commands = commands_of(section.partition("\n## ")[0])
    assert tests.text == "python3 tests/run.py"
    with Terminal(folder, variables) as terminal:
        for command in commands:
            terminal.run(command.text)
    return folder


@pytest.fixture(scope="module")
def wheel_names(release: Path) -> list[str]:
    """What is in the wheel."""
    (wheel,) = (release / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def packaged() -> set[str]:
    """Every file of the package that git tracks."""
    package = ROOT / "django_outbox"
    return {
        path.relative_to(ROOT).as_posix() for path in files() if package in path.parents
    }


def test_a_release_has_a_wheel_and_an_sdist_of_the_name_in_the_hints(
    release: Path,
) -> None:
    # The release's own steps have `twine check --strict` both.
    made = sorted(path.name for path in (release / "dist").iterdir())
    stem = re.escape(DISTRIBUTION.replace("-", "_"))
    assert len(made) == 2
    assert re.fullmatch(rf"{stem}-[\d.]+-py3-none-any\.whl", made[0])
    assert re.fullmatch(rf"{stem}-[\d.]+\.tar\.gz", made[1])


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(
    wheel_names: list[str],
) -> None:
    held = {name for name in wheel_names if ".dist-info/" not in name}
    assert held == packaged()
    suffixes = {Path(name).suffix for name in held}
    assert {".py", ".sql", ".txt", ".properties", ".typed"} <= suffixes


def test_the_sdist_holds_what_the_wheel_is_built_from(release: Path) -> None:
    (sdist,) = (release / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert packaged() | {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_the_bill_of_materials_names_what_the_core_needs(release: Path) -> None:
    bill = json.loads((release / "build" / "sbom.json").read_text("utf-8"))
    assert bill["metadata"]["component"]["name"] == DISTRIBUTION
    named = {component["name"].lower() for component in bill["components"]}
    assert {"django", "psycopg", "confluent-kafka"} <= named
