"""Download Java archives in a process of their own, so that it can be ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .kept import KeptProcess

_IMPORTED_FROM: Final = Path(__file__).resolve().parents[2]


def download(
    name: str,
    process: KeptProcess,
    *,
    progress: Callable[[str], None],
    prefix: Sequence[str] = (),
) -> None:
    """
    Bring the pinned archives of one list into the user's cache folder.

    Args:
        name: of the list, such as `kafka`.
        process: runs the download; closing it ends the download.
        progress: hears how many have come.
        prefix: what the command begins with, such as `nice`.

    Raises:
        DevstackError: an archive cannot be had, or is not the pinned one.
    """
    from ..jars import are_cached, read_list

    if are_cached(read_list(name)):
        return
    # It works in another folder, where a checkout would not be found.
    path = os.pathsep.join(
        filter(None, [str(_IMPORTED_FROM), os.environ.get("PYTHONPATH")])
    )
    process.run(
        [
            *(*prefix, "env", f"PYTHONPATH={path}"),
            *(sys.executable, "-m", "django_outbox.jars", name),
        ],
        name="the download of Java archives",
        progress=progress,
    )
