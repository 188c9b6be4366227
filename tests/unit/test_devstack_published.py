"""How a running devstack is found by processes that were not told of it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from django_outbox.devstack import published as module
from django_outbox.devstack.published import published, running

VARIABLES = {"DATABASE_URL": "postgres://h/d", "KAFKA_BOOTSTRAP_SERVERS": "h:1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "devstack.json"


def test_a_running_devstack_is_found_while_it_runs(path: Path) -> None:
    with published(VARIABLES, path=path) as obstacle:
        assert not obstacle
        assert running(path=path) == VARIABLES
    assert running(path=path) == {}


def test_nothing_is_found_where_none_ever_ran(path: Path) -> None:
    assert running(path=path) == {}


def test_a_devstack_that_was_killed_is_not_found(path: Path) -> None:
    """Its file stays behind, but the system has released its lock."""
    code = (
        "import sys, os, pathlib\n"
        "from django_outbox.devstack.published import published\n"
        "with published({'DATABASE_URL': 'gone'}, path=pathlib.Path(sys.argv[1])):\n"
        "    os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    assert "gone" in path.read_text()
    assert running(path=path) == {}


def test_a_second_devstack_leaves_the_first_ones_addresses_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCK_TIMEOUT", 0.0)
    with published(VARIABLES, path=path):
        with published({"DATABASE_URL": "second"}, path=path) as obstacle:
            assert obstacle == module.ANOTHER
        assert running(path=path) == VARIABLES


def test_a_devstack_whose_folder_cannot_be_made_runs(path: Path) -> None:
    path.parent.write_text("not a folder")
    with published(VARIABLES, path=path) as obstacle:
        assert "File exists" in obstacle
    assert running(path=path) == {}


def test_a_devstack_runs_on_a_full_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(file: int, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", write)
    with published(VARIABLES, path=path) as obstacle:
        assert "No space left on device" in obstacle
    assert running(path=path) == {}


def test_only_this_user_may_read_the_addresses(path: Path) -> None:
    with published(VARIABLES, path=path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
