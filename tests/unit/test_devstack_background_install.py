"""A second stage is installed while the first one is in use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from django_outbox.devstack import DevstackError, background_install, bootstrap
from django_outbox.devstack.background_install import BackgroundInstall
from django_outbox.devstack.waiting import wait_while_moving

PYPROJECT = """\
[project]
name = "django-outbox"
[project.optional-dependencies]
demo = ["rich"]
lake = ["django-outbox[demo]", "pyspark==4"]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the first stage; pip is what a test says."""
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").touch()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "constraints.txt").write_text("")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(bootstrap, "ENVIRONMENT", environment)
    monkeypatch.setattr(bootstrap, "PYTHON", environment / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", environment / "django-outbox.json")
    monkeypatch.setattr(background_install, "download", lambda *_, **__: None)
    bootstrap._write_stamp(
        {"home": bootstrap._home(), "inputs": bootstrap._inputs(), "extras": ["demo"]}
    )
    return tmp_path


def let_pip(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(bootstrap, "_pip", lambda: ["sh", "-c", script, "pip"])


def stamp() -> dict[str, object]:
    read: dict[str, object] = json.loads(bootstrap.STAMP.read_text())
    return read


def test_it_installs_what_is_missing_once(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pip(monkeypatch, f'echo "$@" >>{checkout}/asked')
    for _ in range(2):
        with BackgroundInstall("lake", archives="spark") as lake:
            lake.wait()
        assert "installed" in lake.status
    assert (checkout / "asked").read_text() == "pyspark==4 rich\n"
    assert bootstrap.is_complete("demo", "lake")
    assert "adding" not in stamp()


def test_what_pip_says_is_its_status(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pip(monkeypatch, "echo 'Collecting pyspark (from spark)'; sleep 1000")
    with BackgroundInstall("lake", archives="spark") as lake:
        wait_while_moving(lambda: lake.status == "Collecting pyspark", what="pip")


def test_leaving_ends_it_and_the_first_stage_stays_complete(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pip(monkeypatch, f"touch {checkout}/begun; sleep 1000")
    with BackgroundInstall("lake", archives="spark") as lake:
        wait_while_moving((checkout / "begun").exists, what="pip")
    with pytest.raises(DevstackError, match=r"closed|code -9"):
        lake.wait()
    assert bootstrap.is_complete("demo")
    assert not bootstrap.is_complete("lake")
    assert stamp()["adding"] == "lake"
    let_pip(monkeypatch, "true")
    with BackgroundInstall("lake", archives="spark") as lake:
        lake.wait()
    assert bootstrap.is_complete("lake")


def test_a_failure_is_raised_where_it_is_waited_for(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pip(monkeypatch, "echo no route to host; exit 1")
    with (
        BackgroundInstall("lake", archives="spark") as lake,
        pytest.raises(DevstackError, match=r"pip failed with code 1(.|\n)*no route"),
    ):
        lake.wait()
    assert lake.status == "failed"


def test_archives_come_after_the_packages(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, *_: object, **__: object) -> None:
        assert bootstrap.is_complete("lake")
        (checkout / name).touch()

    monkeypatch.setattr(background_install, "download", download)
    let_pip(monkeypatch, "true")
    with BackgroundInstall("lake", archives="spark") as lake:
        lake.wait()
    assert (checkout / "spark").exists()
