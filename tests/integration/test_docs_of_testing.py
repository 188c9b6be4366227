"""The how-to on testing: its examples run as a project's tests, in two processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack
from django_outbox.testing import OutboxFixture
from django_outbox.testing.value_lookups import _LOOKUPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/testing.md").read_text("utf-8")
FILES = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_is_a_file() -> None:
    assert len(FILES) == PAGE.count("```python") >= 8
    assert len({name for name, _ in FILES}) == len(FILES)


def test_every_example_passes(services: Stack, tmp_path: Path) -> None:
    for name, text in FILES:
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    url, _, _ = services.database_url.rpartition("/")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-ra"],
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
            **services.environment,
            "DATABASE_URL": f"{url}/testing_{uuid4().hex[:12]}",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DEVSTACK_SOURCES": "environment",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "example_project"), str(ROOT)]),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    tests = sum(text.count("def test_") for _, text in FILES)
    assert ended.returncode == 0, ended.stdout
    assert f" {tests} passed" in ended.stdout


def test_the_page_names_every_lookup() -> None:
    (row,) = re.findall(r"\| a lookup: (.*?) \|", PAGE)
    assert set(re.findall(r"`(\w+)`", row)) == set(_LOOKUPS)


@pytest.mark.parametrize(
    "name", [name for name in dir(OutboxFixture) if not name.startswith("_")]
)
def test_the_page_names_what_an_outbox_can_do(name: str) -> None:
    assert f".{name}" in PAGE
