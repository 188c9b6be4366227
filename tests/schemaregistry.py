"""A real schema registry for tests: Apicurio, which has Confluent's API, in memory."""

from __future__ import annotations

import hashlib
import shutil
import signal
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from urllib.error import HTTPError

from django_outbox.devstack.service import DevstackError, free_port, wait_until
from django_outbox.devstack.supervised_process import SupervisedProcess
from django_outbox.jars.find_java import JavaMissing, find_java
from django_outbox.jars.resolver import default_cache

GROUP, ARTIFACT, VERSION = "io.apicurio", "apicurio-registry-app", "3.0.9"
SHA256: Final = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"

API: Final = "/apis/ccompat/v7"
"""Path of Confluent's API."""


@contextmanager
def schema_registry() -> Iterator[int]:
    """
    Run a registry until the block ends; yield its port on 127.0.0.1.

    Raises:
        DevstackError: there is none here.
    """
    try:
        java = find_java()
        folder = _unpacked()
    except JavaMissing as error:
        raise DevstackError(str(error)) from error
    port = free_port()
    process = SupervisedProcess("registry", ending=signal.SIGKILL)
    try:
        process.start(
            [
                *(java, "-Xmx512m", "-XX:TieredStopAtLevel=1"),
                *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
                f"-Dquarkus.management.port={free_port()}",
                *("-jar", str(folder / f"{ARTIFACT}-{VERSION}-runner.jar")),
            ]
        )
        wait_until(
            lambda: _answers(f"http://127.0.0.1:{port}{API}/subjects"),
            is_alive=process.is_running,
            explain=process.explain,
        )
        yield port
    finally:
        process.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  # http
            return bool(response.status == 200)
    except HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def _unpacked() -> Path:
    """Return the program's folder in the user's cache; download it at first use."""
    target = default_cache().with_name(f"{ARTIFACT}-{VERSION}")
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(mkdtemp(prefix=".partial-", dir=target.parent))
    try:
        archive = _download(partial)
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != SHA256:
            raise DevstackError(f"{archive.name} has sha256 {found}, not {SHA256}.")
        with tarfile.open(archive) as opened:
            opened.extractall(partial / "unpacked", filter="data")
        # Last, so that what was interrupted is made again.
        (partial / "unpacked").replace(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _download(folder: Path) -> Path:
    from jgo.maven import MavenContext

    project = MavenContext(repo_cache=folder).project(GROUP, ARTIFACT)
    artifact = project.at_version(VERSION).artifact("all", "tar.gz")
    try:
        return Path(artifact.resolve())
    except Exception as error:
        raise DevstackError(f"{ARTIFACT} could not be downloaded: {error}") from error
