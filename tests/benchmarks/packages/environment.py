"""
An environment for packages that must not share ours, in the user's cache folder.

They pin versions of what we use, too. It is made at first use and again when
the list of requirements, or Python, has changed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from django_outbox.jars.resolver import default_cache

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")


class PackagesError(Exception):
    """The packages cannot be installed."""


def default_folder() -> Path:
    """Where all checkouts of this user share it."""
    return default_cache().with_name("packages")


def ensure(*, progress: Callable[[str], None]) -> Path:
    """
    Return the environment's Python, with all that is listed installed.

    Raises:
        PackagesError: it is not; the output of what failed is shown.
    """
    folder = default_folder()
    python, stamp = folder / "bin" / "python", folder / "made-from.txt"
    made_from = (
        f"# Python {platform.python_version()}\n{REQUIREMENTS.read_text('utf-8')}"
    )
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == made_from:
        return python
    progress(f"making {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    install = (
        *(str(python), "-m", "pip", "install", "--no-input", "--progress-bar=off"),
        *("--disable-pip-version-check", "--no-deps", f"--requirement={REQUIREMENTS}"),
    )
    for command in ((sys.executable, "-m", "venv", str(folder)), install):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            progress(done.stdout + done.stderr)
            raise PackagesError(f"they cannot be installed, `{command[2]}` failed.")
    # Last, so that what was interrupted is made again.
    stamp.write_text(made_from, "utf-8")
    return python
