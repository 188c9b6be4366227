"""Downloads Java archives in a separate process, so that it can be interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .supervised_process import SupervisedProcess

_IMPORTED_FROM: Final = Path(__file__).resolve().parents[2]


def download(
    name: str,
    process: SupervisedProcess,
    *,
    progress: Callable[[str], None],
    prefix: Sequence[str] = (),
) -> None:
    """
    Download the pinned archives of one list into the user's cache folder.

    Args:
        name: Name of the list, such as `kafka`.
        process: Runs the download; closing it ends the download.
        progress: Called with each line of progress.
        prefix: Start of the command, such as `nice`.

    Raises:
        DevstackError: an archive cannot be downloaded or has the wrong content.
    """
    from ..jars import are_cached, read_list

    if are_cached(read_list(name)):
        return
    # The process runs in another folder, where Python would not find a checkout.
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
