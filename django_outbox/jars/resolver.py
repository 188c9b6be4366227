"""
Bring pinned archives into the user's cache folder, and prove each one.

Every call checks every file against its sha256; only what is missing is
downloaded, through jgo, which knows the central repository by itself. A
download lands in a folder of its own and is moved into place when its content
is proved, so what a killed process leaves behind is never taken for whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from ..exceptions import OutboxError
from .coordinates import Coordinate

DOWNLOADS_AT_ONCE: Final = 8
"""More brings nothing: the archives are small and the repository is one."""

ATTEMPTS: Final = 3
"""For each archive, since one lost connection should not end a set-up."""

_PARTIAL: Final = ".partial-"


class JarError(OutboxError):
    """A pinned Java archive cannot be had, or is not what it should be."""


def default_cache() -> Path:
    """The folder that all projects of this user share."""
    from platformdirs import user_cache_path

    return user_cache_path("django-outbox", appauthor=False) / "jars"


def are_cached(coordinates: Sequence[Coordinate], *, cache: Path | None = None) -> bool:
    """Whether all of these archives are on this machine, each proved."""
    cache = cache or default_cache()
    return all(_is_proved(cache, coordinate) for coordinate in coordinates)


def resolve(
    coordinates: Sequence[Coordinate],
    *,
    cache: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """
    Return the files of these archives, in order, each with its content proved.

    Raises:
        JarError: an archive is not to be had, or its sha256 is another.
    """
    cache = cache or default_cache()
    if not are_cached(coordinates, cache=cache):
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache):
            # Another process may have brought them while this one waited.
            missing = [c for c in coordinates if not _is_proved(cache, c)]
            _download(missing, cache, progress)
    return [cache / coordinate.path for coordinate in coordinates]


def _is_proved(cache: Path, coordinate: Coordinate) -> bool:
    path = cache / coordinate.path
    return path.is_file() and _sha256(path) == coordinate.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Hold the cache's lock, and sweep what killed downloads left in it."""
    folder = os.open(cache, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        for leftover in cache.glob(f"{_PARTIAL}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        os.close(folder)


def _download(
    coordinates: Sequence[Coordinate], cache: Path, progress: Callable[[str], None]
) -> None:
    partial = Path(mkdtemp(prefix=_PARTIAL, dir=cache))
    executor = ThreadPoolExecutor(DOWNLOADS_AT_ONCE)
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
    """Download one archive, prove it, move it into the cache."""
    for attempt in range(ATTEMPTS):
        try:
            # A folder for each attempt: half a file is no start for the next.
            path = _download_with_jgo(coordinate, partial / str(attempt))
            break
        except Exception as error:  # noqa: BLE001 - of jgo and of what it uses
            cause = error
    else:
        raise JarError(
            f"{coordinate} could not be downloaded: {cause}. The download needs"
            " access to the central Maven repository; what is already in"
            f" {cache} is not asked for again."
        ) from cause
    if (found := _sha256(path)) != coordinate.sha256:
        path.unlink()
        raise JarError(
            f"{coordinate} is not the pinned file and was removed: its sha256 is"
            f" {found} instead of {coordinate.sha256}."
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
