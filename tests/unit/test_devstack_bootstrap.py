"""From a clean checkout to an environment, in stages, and what calls for a new one."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from django_outbox.devstack import bootstrap
from django_outbox.devstack.extras import Extras
from tests.processes import ROOT
from tests.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]


PYPROJECT = """\
[project]
name = "django_outbox"
[project.optional-dependencies]
demo = ["django-outbox[terminal]", "celery>=5"]
terminal = ["rich>=13"]
lake = ["Django.Outbox[demo, spark]"]
spark = ["pyspark==4"]
dev = ["django-outbox[lake]", "pytest"]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty checkout, where `_run` and `_install` only say what they would do."""
    environment = tmp_path / ".venv"
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
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
    if not bootstrap.is_complete(*extras):
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


def test_what_an_extra_leads_to_needs_no_other_installation(steps: list[str]) -> None:
    build("dev")
    build("demo")
    build("lake")
    assert steps == ["venv", "pip"]


def test_a_stage_is_added_to_an_environment_that_stays_complete(
    steps: list[str],
) -> None:
    build("demo")
    with bootstrap.adding("lake") as command:
        assert bootstrap.is_complete("demo")
        assert not bootstrap.is_complete("lake")
        # Not the project: processes run from it.
        assert command[-3:] == ["celery>=5", "pyspark==4", "rich>=13"]
        assert "--editable" not in command
    build("lake")
    assert steps == ["venv", "pip"]


def test_an_interrupted_stage_leaves_the_first_one_and_is_installed_again(
    steps: list[str], checkout: Path
) -> None:
    build("demo")
    with pytest.raises(KeyboardInterrupt), bootstrap.adding("lake"):
        raise KeyboardInterrupt
    build("demo")
    assert steps == ["venv", "pip"]
    half, whole = make_metadata(checkout, "half"), make_metadata(checkout, "whole")
    (whole / "INSTALLER").write_text("pip")
    with bootstrap.adding("lake"):
        assert not half.exists()
        assert whole.exists()
    assert bootstrap.is_complete("lake")


def test_another_script_also_repairs_an_interrupted_stage(
    steps: list[str], checkout: Path
) -> None:
    build("demo")
    with pytest.raises(KeyboardInterrupt), bootstrap.adding("lake"):
        raise KeyboardInterrupt
    half = make_metadata(checkout, "half")
    build("dev")
    assert not half.exists()
    assert bootstrap.is_complete("lake")
    assert "adding" not in json.loads(bootstrap.STAMP.read_text())


def make_metadata(checkout: Path, name: str) -> Path:
    """A package of which pip has written the metadata, and not who installed it."""
    folder = checkout / f".venv/lib/python3.11/site-packages/{name}-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    return folder


def test_pip_installs_again_what_it_was_interrupted_in(
    checkout: Path, tmp_path: Path
) -> None:
    """The sign that `_remove_half_installed` goes by is pip's own."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", bootstrap.ENVIRONMENT],
        check=True,
    )
    wheel = make_wheel(tmp_path, "thing")
    pip = [sys.executable, "-m", "pip", "--python", str(bootstrap.PYTHON), "install"]
    install = [*pip, "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True)
    (module,) = bootstrap.ENVIRONMENT.glob("lib/python*/site-packages/thing.py")
    (installer,) = module.parent.glob("thing-*.dist-info/INSTALLER")
    installer.unlink()
    module.unlink()
    subprocess.run(install, check=True)
    assert not module.exists(), "pip looks at more than the metadata by now"
    bootstrap._remove_half_installed()
    subprocess.run(install, check=True)
    assert module.exists()


def make_wheel(folder: Path, name: str) -> Path:
    """The smallest package there is."""
    metadata = f"{name}-1.dist-info"
    wheel = folder / f"{name}-1-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(
            f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        )
        archive.writestr(
            f"{metadata}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        )
        archive.writestr(f"{metadata}/RECORD", "")
    return wheel


def test_the_first_stage_of_the_demo_is_small() -> None:
    extras = Extras(REPOSITORY / "pyproject.toml")
    heavy = ("pyspark", "pyarrow", "pandas", "matplotlib")
    first = extras.requirements({"demo"})
    assert not [line for line in first if line.startswith(heavy)]
    second = extras.requirements({"demo-lake"})
    assert [line for line in second if line.startswith("pyspark==")]


def test_an_interrupted_step_leaves_no_process(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def interrupt(line: str, **_: object) -> None:
        pids.append(int(line.split()[1]))
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "_say", interrupt)
    script = 'sleep 1000 & echo "Collecting $!"; wait'
    with pytest.raises(KeyboardInterrupt):
        bootstrap._run(["sh", "-c", script], echo=("Collecting ",))
    (pid,) = pids
    eventually(lambda: not is_running(pid), what="the end of what the step has started")


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_second_script_says_that_it_waits(checkout: Path) -> None:
    said: list[str] = []
    second = threading.Thread(target=wait_for_the_lock, args=(said,))
    with bootstrap.install_lock(say=said.append):
        assert said == []
        second.start()
        eventually(lambda: said)
    second.join(10)
    assert "waiting for another script" in said[0]
    assert said[1:] == ["in"]


def test_a_step_that_outlives_its_script_keeps_the_lock(tmp_path: Path) -> None:
    """pip goes on for a while when the script was killed."""
    code = f"""
from pathlib import Path
from django_outbox.devstack import bootstrap
bootstrap.ROOT = Path({str(tmp_path)!r})
with bootstrap.install_lock(say=print):
    bootstrap._run(["sh", "-c", "echo $$ > pid; exec sleep 1000"])
"""
    script = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    number = tmp_path / "pid"
    eventually(lambda: number.exists() and number.read_text().strip(), what="a step")
    script.kill()
    script.wait()
    folder = os.open(tmp_path, os.O_RDONLY)

    def is_free() -> bool:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    assert not is_free()
    os.kill(int(number.read_text()), signal.SIGKILL)
    eventually(is_free, what="the lock")
    os.close(folder)


def wait_for_the_lock(said: list[str]) -> None:
    with bootstrap.install_lock(say=said.append):
        said.append("in")


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


@pytest.mark.parametrize("kind", ["windows", "dangling", "theirs", "file", "link"])
def test_what_somebody_else_has_there_is_refused_and_kept(
    steps: list[str], checkout: Path, kind: str
) -> None:
    """An environment of Windows, in WSL; or of the host, in a container."""
    there = checkout / ".venv"
    if kind == "file":
        there.write_text("theirs")
    elif kind == "link":
        there.symlink_to("nowhere")
    else:
        (there / "bin").mkdir(parents=True)
        (there / "bin" / "theirs").touch()
        if kind != "windows":
            bootstrap.PYTHON.symlink_to("nowhere")
        if kind == "theirs":
            bootstrap.STAMP.write_text('{"theirs": true}')
    before = sorted(checkout.rglob("*"))
    with pytest.raises(SystemExit, match="was not made by this script"):
        build("dev")
    assert (sorted(checkout.rglob("*")), steps) == (before, [])


@pytest.mark.parametrize("left", [[], ["django-outbox.partial"]])
def test_an_empty_folder_is_used_as_it_is(
    steps: list[str], checkout: Path, left: list[str]
) -> None:
    """It may be a mount point, which nobody can delete."""
    there = checkout / ".venv"
    there.mkdir()
    for name in left:
        (there / name).touch()
    inode = there.stat().st_ino
    build("dev")
    assert (steps, there.stat().st_ino) == (["venv", "pip"], inode)


def test_a_checkout_that_cannot_be_written_is_told(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(bootstrap, "_build", refuse)
    with pytest.raises(SystemExit, match=r"\.venv cannot be written: .*denied"):
        bootstrap.ensure_environment("dev")


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


def test_a_step_that_fails_on_a_newer_python_names_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 15, 0))
    with pytest.raises(SystemExit, match=r"is Python 3\.15, .* use 3\.13 or older"):
        bootstrap._run([sys.executable, "-c", "raise SystemExit(3)"])


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
