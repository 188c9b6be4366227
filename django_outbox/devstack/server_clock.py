"""
A clock of its own for one server: libfaketime, where it can be had.

It moves the wall clock of a process and leaves its other clocks alone. The
library comes with the Python package `libfaketime`, for one kind of machine
only, or with the system's package of that name.
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
_LOOK: Final = "import time; print(time.time() > 4e9)"


def ahead_by(seconds: float, *, copy_to: Path) -> Mapping[str, str]:
    """
    Return the variables of a process whose clock is so far ahead.

    Args:
        seconds: may be negative; 0 leaves the clock alone.
        copy_to: folder of a user who may not read the installed library.

    Raises:
        DevstackError: the library is not there; says how to get it.
    """
    if not seconds:
        return {}
    if not (library := libfaketime()):
        raise DevstackError(
            "A clock that is ahead needs libfaketime: `pip install libfaketime`, or"
            " the package `libfaketime` of Debian and others."
        )
    copy = Path(shutil.copy(library, copy_to))
    copy.chmod(0o644)
    return _variables(copy, seconds)


@cache
def libfaketime() -> Path | None:
    """Return where the library is, or None if none works on this machine."""
    return next(filter(_works, _candidates()), None)


def _candidates() -> Iterator[Path]:
    if (spec := find_spec("libfaketime")) and spec.origin:
        yield from Path(spec.origin).parent.rglob(_NAME)
    for root in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        yield from root.glob(f"faketime/{_NAME}")
        yield from root.glob(f"*/faketime/{_NAME}")


def _works(library: Path) -> bool:
    """Whether it moves the clock of a process by a hundred years."""
    looked = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LOOK],
        env={**os.environ, **_variables(library, 3.2e9)},
        capture_output=True,
        check=False,
    )
    return looked.stdout.strip() == b"True"


def _variables(library: Path, seconds: float) -> Mapping[str, str]:
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+f}s",
        # Time-outs must last as long as they say.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
