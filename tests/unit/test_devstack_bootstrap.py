"""From a clean checkout to an environment, and what calls for a new one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from django_outbox.devstack import bootstrap

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout, where `_run` and `_install` only say what they would do."""
    environment = tmp_path / ".venv"
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "constraints.txt").write_text("Django==5.2\n")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(bootstrap, "ENVIRONMENT", environment)
    monkeypatch.setattr(bootstrap, "PYTHON", environment / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", environment / "django-outbox.json")
    monkeypatch.setattr(bootstrap, "_java_extra", list)
    monkeypatch.setattr(bootstrap, "_say", lambda _, **__: None)
    return tmp_path


@pytest.fixture
def steps(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order."""
    steps: list[str] = []

    def run(command: list[str], **_: object) -> None:
        steps.append(command[2])
        if command[2] == "venv":
            python = checkout / ".venv" / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.symlink_to(sys.executable)

    monkeypatch.setattr(bootstrap, "_run", run)
    return steps


def build(*extras: str) -> None:
    if not bootstrap._is_complete(extras):
        bootstrap._build(extras)


def test_a_clean_checkout_gets_an_environment_once(steps: list[str]) -> None:
    build("dev")
    assert steps == ["venv", "pip"]
    build("dev")
    assert steps == ["venv", "pip"]


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_a_changed_input_calls_for_another_installation(
    steps: list[str], checkout: Path, file: str
) -> None:
    build("dev")
    with (checkout / file).open("a") as text:
        text.write("# changed\n")
    build("dev")
    assert steps == ["venv", "pip", "pip"]


def test_scripts_with_other_extras_share_the_environment(steps: list[str]) -> None:
    build("demo")
    build("dev")
    build("demo")
    assert steps == ["venv", "pip", "pip"]


def test_an_interrupted_installation_starts_from_scratch(
    steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(extras: set[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "_install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build("dev")
    build("dev")
    assert steps == ["venv", "venv", "pip"]


def test_an_environment_that_was_moved_here_is_made_anew(
    steps: list[str], checkout: Path
) -> None:
    build("dev")
    stamp = json.loads(bootstrap.STAMP.read_text())
    bootstrap.STAMP.write_text(json.dumps({**stamp, "home": "Python 3.11 in /other"}))
    build("dev")
    assert steps == ["venv", "pip", "venv", "pip"]


def test_an_environment_that_somebody_else_made_is_kept(
    steps: list[str], checkout: Path
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    bootstrap.PYTHON.symlink_to(sys.executable)
    (checkout / ".venv" / "theirs").touch()
    build("dev")
    assert steps == ["ensurepip", "pip"]
    build("dev")
    assert steps == ["ensurepip", "pip"]
    # Nor is it deleted later, when it no longer fits.
    stamp = json.loads(bootstrap.STAMP.read_text())
    bootstrap.STAMP.write_text(json.dumps({**stamp, "home": "elsewhere"}))
    build("dev")
    assert (checkout / ".venv" / "theirs").exists()


def test_an_environment_of_another_python_is_refused_and_kept(
    steps: list[str], checkout: Path
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    bootstrap.PYTHON.write_text("#!/bin/sh\necho 3.8\n")
    bootstrap.PYTHON.chmod(0o755)
    with pytest.raises(SystemExit, match=r"has Python 3\.8"):
        build("dev")
    assert steps == []


def test_a_step_that_fails_shows_its_output_and_what_is_needed(checkout: Path) -> None:
    with pytest.raises(SystemExit, match=r"no route to host(.|\n)*network"):
        bootstrap._run(["sh", "-c", "echo no route to host; exit 1"])


def test_an_old_python_is_told_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    with pytest.raises(SystemExit, match=r"This needs Python 3\.11 or newer; .* 3\.10"):
        bootstrap.ensure_environment("dev")


def test_the_bootstrap_needs_the_standard_library_only() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
import django_outbox.devstack.bootstrap
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_the_constraints_are_names_with_versions_and_nothing_else() -> None:
    lines = (REPOSITORY / "django_outbox/devstack/constraints.txt").read_text()
    for line in lines.splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line), line
