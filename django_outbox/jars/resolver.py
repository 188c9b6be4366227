"""
Downloads pinned archives into the user's cache folder and verifies each one.

Every call verifies the sha256 of every file; only missing files are downloaded
(with jgo, from the central repository). A download goes to a temporary folder
and is moved into place after verification, so a killed process never leaves an
incomplete file in the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from ..exceptions import OutboxError
from .coordinates import Coordinate

PARALLEL_DOWNLOADS: Final = 8
"""More are not faster: the archives are small and come from one repository."""

ATTEMPTS: Final = 3
"""Attempts for each archive, because connections may be lost."""

SAY_INTERVAL: Final = 10.0
"""Seconds between two lines of a process that waits for another one's download. Its
parent takes a minute of silence for a hang."""

_PARTIAL: Final = ".partial-"


class JarError(OutboxError):
    """A pinned Java archive cannot be downloaded or has the wrong content."""


def default_cache() -> Path:
    """Return the cache folder that all projects of this user share."""
    from platformdirs import user_cache_path

    return user_cache_path("django-outbox", appauthor=False) / "jars"


def are_cached(coordinates: Sequence[Coordinate], *, cache: Path | None = None) -> bool:
    """Whether all of these archives are in the cache, with the right content."""
    cache = cache or default_cache()
    return all(_is_verified(cache, coordinate) for coordinate in coordinates)


def resolve(
    coordinates: Sequence[Coordinate],
    *,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """
    Return the verified files of these archives, in order.

    Raises:
        JarError: an archive cannot be downloaded or stored, or its sha256 differs.
    """
    cache = cache or default_cache()
    try:
        if not are_cached(coordinates, cache=cache):
            cache.mkdir(parents=True, exist_ok=True)
            with _locked(cache, progress):
                # Another process may have downloaded them while this one waited.
                missing = [c for c in coordinates if not _is_verified(cache, c)]
                _download(missing, cache, progress)
    except OSError as error:
        raise JarError(
            f"The Java archives cannot be kept in {cache}: {error.strerror or error}."
            " Make room there and let this user write to it, or name another folder"
            " for caches with XDG_CACHE_HOME."
        ) from error
    return [cache / coordinate.path for coordinate in coordinates]


def _is_verified(cache: Path, coordinate: Coordinate) -> bool:
    path = cache / coordinate.path
    return path.is_file() and _sha256(path) == coordinate.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(cache: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the cache; remove the remains of killed downloads first."""
    folder = os.open(cache, os.O_RDONLY)
    try:
        said_at = -math.inf
        while not _try_lock(folder):
            if time.monotonic() - said_at >= SAY_INTERVAL:
                said_at = time.monotonic()
                progress("waiting for another download of Java archives")
            time.sleep(0.2)  # no signal tells of a lock that is free
        for leftover in cache.glob(f"{_PARTIAL}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _download(
    coordinates: Sequence[Coordinate], cache: Path, progress: Callable[[str], None]
) -> None:
    partial = Path(mkdtemp(prefix=_PARTIAL, dir=cache))
    executor = ThreadPoolExecutor(PARALLEL_DOWNLOADS)
    try:
        futures = [executor.submit(_fetch, c, partial, cache) for c in coordinates]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if done % 10 == 0 or done == len(futures):
                progress(f"downloaded {done} of {len(futures)} Java archives")
    finally:
        executor.shutdown(cancel_futures=True)
        shutil.rmtree(partial, ignore_errors=True)


def _fetch(coordinate: Coordinate, partial: Path, cache: Path) -> None:
    """Download one archive, verify it, move it into the cache."""
    for attempt in range(ATTEMPTS):
        try:
            # A folder for each attempt, so that none sees half a file.
            path = _download_with_jgo(coordinate, partial / str(attempt))
            break
        except Exception as error:  # noqa: BLE001 - jgo raises errors of many libraries
            cause = error
    else:
        raise JarError(
            f"{coordinate} could not be downloaded: {cause}. The download needs"
            f" access to the central Maven repository; files in {cache} are kept."
        ) from cause
    if (found := _sha256(path)) != coordinate.sha256:
        path.unlink()
        raise JarError(
            f"{coordinate} has sha256 {found} instead of the pinned"
            f" {coordinate.sha256}; the file was removed."
        )
    target = cache / coordinate.path
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)


def _download_with_jgo(coordinate: Coordinate, folder: Path) -> Path:
    from jgo.maven import MavenContext

    project = MavenContext(repo_cache=folder).project(
        coordinate.group, coordinate.artifact
    )
    artifact = project.at_version(coordinate.version).artifact(packaging="jar")
    return Path(artifact.resolve())
