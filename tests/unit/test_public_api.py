"""What `import django_outbox` gives, and what it leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import django_outbox

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", django_outbox.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(django_outbox, name) is not None
    assert name in dir(django_outbox)


def test_names_are_listed_once_and_each_has_a_home() -> None:
    assert len(set(django_outbox.__all__)) == len(django_outbox.__all__)
    assert {*django_outbox._HOME, "__version__"} == set(django_outbox.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stahs'"):
        django_outbox.stahs  # noqa: B018


def test_stash_is_the_function_however_it_is_imported() -> None:
    import django_outbox.stashing.writing
    from django_outbox import stash

    assert stash is django_outbox.stashing.writing.stash
    assert callable(stash)


def test_importing_the_package_imports_neither_django_nor_a_driver() -> None:
    """Spark drivers, and tools that only read the version, have neither."""
    code = (
        "import sys, django_outbox; django_outbox.Event; django_outbox.OutboxError;"
        "print([m for m in ('django', 'psycopg', 'confluent_kafka')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_writing_loads_no_kafka_client() -> None:
    """A client that was made before a fork hangs after it; there is none."""
    code = (
        "import sys, django; django.setup(); from django_outbox import stash;"
        "print('confluent_kafka' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "False"


def test_the_version_is_the_distributions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert django_outbox.__version__ == project["version"]
