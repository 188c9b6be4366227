"""
A clock of its own for one server, with libfaketime.

It shifts the wall clock of a process, but not its monotonic clocks. The library
comes with the Python package `libfaketime`, for some platforms only, or with
the system's package of that name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .service import DevstackError

_NAME: Final = "libfaketime.so.1"
_PROBE: Final = "import time; print(time.time() > 4e9)"


def ahead_by(seconds: float, *, copy_to: Path) -> Mapping[str, str]:
    """
    Return environment variables that shift the clock of a process.

    Args:
        seconds: Offset; may be negative. 0 does not change the clock.
        copy_to: Folder for a copy of the library, for a user who may not read the
            installed one.

    Raises:
        DevstackError: the library is not installed; says how to install it.
    """
    if not seconds:
        return {}
    if not (library := libfaketime()):
        raise DevstackError(
            "Shifting a server's clock needs libfaketime: run `pip install"
            " libfaketime`, or install the system package `libfaketime`."
        )
    copy = Path(shutil.copy(library, copy_to))
    copy.chmod(0o644)
    return _variables(copy, seconds)


@cache
def libfaketime() -> Path | None:
    """Return the path of the library, or None if none works on this machine."""
    return next(filter(_works, _candidates()), None)


def _candidates() -> Iterator[Path]:
    if (spec := find_spec("libfaketime")) and spec.origin:
        yield from Path(spec.origin).parent.rglob(_NAME)
    for root in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        yield from root.glob(f"faketime/{_NAME}")
        yield from root.glob(f"*/faketime/{_NAME}")


def _works(library: Path) -> bool:
    """Whether the library can shift the clock of a process by a hundred years."""
    looked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROBE],
        env={**os.environ, **_variables(library, 3.2e9)},
        capture_output=True,
        check=False,
    )
    return looked.stdout.strip() == b"True"


def _variables(library: Path, seconds: float) -> Mapping[str, str]:
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+f}s",
        # Time-outs must keep their length.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
