"""The checkout as the project's own rules see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

UNTRACKED = {
    *(".git", ".venv", "build", "dist", "django_outbox_kafka.egg-info"),
    *("__pycache__", "mutants", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
}


def files() -> list[Path]:
    """The files that git tracks or would track; all of them without a git."""
    try:
        listed = subprocess.run(
            [
                *("git", "ls-files", "-z"),
                *("--cached", "--others", "--exclude-standard"),
            ],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not UNTRACKED & set(path.relative_to(ROOT).parts)
        ]
    paths = [ROOT / name for name in listed if name]
    return [path for path in paths if path.is_file()]


def package_modules() -> list[Path]:
    """The modules of the library, without the migrations."""
    modules = (ROOT / "django_outbox").rglob("*.py")
    return sorted(path for path in modules if "migrations" not in path.parts)
