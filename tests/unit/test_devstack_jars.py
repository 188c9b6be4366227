"""Pinned Java archives: the lists, and what the resolver takes for whole."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path

import pytest

from django_outbox.jars import Coordinate, JarError, read_list, resolve
from django_outbox.jars import resolver as resolver_module
from django_outbox.jars.coordinates import parse

CONTENT = b"an archive"
COORDINATE = Coordinate(
    group="org.example",
    artifact="thing_2.13",
    version="1.0",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class Repository:
    """Stands in for jgo: hands out `content` and counts the downloads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
        self.content = content
        self.downloads = 0
        self.failures = 0
        monkeypatch.setattr(resolver_module, "_download_with_jgo", self.download)

    def download(self, coordinate: Coordinate, folder: Path) -> Path:
        self.downloads += 1
        if self.downloads <= self.failures:
            raise ConnectionError("reset by peer")
        folder.mkdir(parents=True)
        path = folder / "download.jar"
        path.write_bytes(self.content)
        return path


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    return Repository(monkeypatch, CONTENT)


def test_the_broker_is_complete_and_every_archive_is_pinned_once() -> None:
    broker = read_list("kafka")
    assert len({(c.group, c.artifact) for c in broker}) == len(broker) == 46
    versions = {c.version for c in broker if c.group == "org.apache.kafka"}
    assert versions == {"4.3.1"}


def test_a_line_without_a_sha256_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'org\.example:thing:1\.0'"):
        parse("# comment\n\norg.example:thing:1.0\n")


def test_an_archive_is_downloaded_once(repository: Repository, tmp_path: Path) -> None:
    for _ in range(2):
        (path,) = resolve([COORDINATE], cache=tmp_path)
        assert path.read_bytes() == CONTENT
    assert repository.downloads == 1


def test_who_waits_for_another_download_says_so(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence would be taken for a process that is stuck."""
    monkeypatch.setattr(resolver_module, "SAY_INTERVAL", 0.0)
    other, said = os.open(tmp_path, os.O_RDONLY), list[str]()
    fcntl.flock(other, fcntl.LOCK_EX)

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            os.close(other)

    resolve([COORDINATE], cache=tmp_path, progress=say)
    assert said[:2] == ["waiting for another download of Java archives"] * 2
    assert repository.downloads == 1


def test_nothing_is_imported_to_download_when_nothing_is_missing(
    repository: Repository, tmp_path: Path
) -> None:
    resolve([COORDINATE], cache=tmp_path)
    sys.modules.pop("jgo.maven", None)
    resolve([COORDINATE], cache=tmp_path)
    assert "jgo.maven" not in sys.modules


def test_another_content_is_an_error_and_does_not_stay(
    repository: Repository, tmp_path: Path
) -> None:
    repository.content = b"something else"
    with pytest.raises(JarError, match=r"org\.example:thing_2\.13:1\.0 has sha256"):
        resolve([COORDINATE], cache=tmp_path)
    assert list(tmp_path.rglob("*.jar")) == []


def test_a_cache_that_cannot_be_written_is_named(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "jars"
    with pytest.raises(JarError, match=rf"kept in {cache}: .* XDG_CACHE_HOME"):
        resolve([COORDINATE], cache=cache)


def test_a_damaged_archive_is_downloaded_anew(
    repository: Repository, tmp_path: Path
) -> None:
    (path,) = resolve([COORDINATE], cache=tmp_path)
    path.write_bytes(CONTENT[:3])
    (path,) = resolve([COORDINATE], cache=tmp_path)
    assert path.read_bytes() == CONTENT


def test_what_a_killed_download_left_is_swept_and_not_used(
    repository: Repository, tmp_path: Path
) -> None:
    leftover = tmp_path / ".partial-of-a-dead-process"
    leftover.mkdir()
    (leftover / "thing_2.13-1.0.jar").write_bytes(CONTENT[:3])
    (path,) = resolve([COORDINATE], cache=tmp_path)
    assert path.read_bytes() == CONTENT
    assert not leftover.exists()


def test_a_lost_connection_is_tried_again(
    repository: Repository, tmp_path: Path
) -> None:
    repository.failures = 2
    (path,) = resolve([COORDINATE], cache=tmp_path)
    assert path.read_bytes() == CONTENT


def test_without_a_network_the_error_names_the_archive_and_the_cause(
    repository: Repository, tmp_path: Path
) -> None:
    repository.failures = 99
    with pytest.raises(JarError, match=r"thing_2\.13:1\.0 could not .* reset by peer"):
        resolve([COORDINATE], cache=tmp_path)


def test_progress_is_told_while_archives_come(
    repository: Repository, tmp_path: Path
) -> None:
    lines: list[str] = []
    resolve([COORDINATE], cache=tmp_path, progress=lines.append)
    assert lines == ["downloaded 1 of 1 Java archives"]
