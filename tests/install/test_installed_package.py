"""The suite's own tests of the package, against the one that pip has installed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from ..machine import nightly
from .interpreters import combinations
from .terminal import Terminal, environment

EXTRAS: Final = (
    "binary,celery,contracts,devstack,encryption,metrics,reaper,registry,schemas,"
    "terminal,testing,tracing"
)

TOOLS: Final = (
    "django-environ hypothesis libfaketime matplotlib pytest-randomly pytest-timeout"
)
"""What the tests import beside the extras."""

CHOSEN: Final = (
    "tests/unit",
    "tests/integration/test_admin.py",
    "tests/integration/test_admin_actions.py",
    "tests/integration/test_live_page.py",
    "tests/integration/test_checks.py",
    # Django has its tasks since 6.0.
    "tests/integration/test_django_tasks.py",
    "tests/integration/test_migration.py",
    "tests/integration/test_models.py",
    "tests/integration/test_stashing.py",
    "tests/test_installed.py",
    # It makes the environment of a checkout, and there is none.
    "--ignore=tests/unit/test_devstack_bootstrap.py",
)

ORIGIN: Final = """
import sys
from pathlib import Path

import django_outbox


def test_the_package_is_the_installed_one() -> None:
    assert Path(django_outbox.__file__).is_relative_to(sys.prefix)
"""


@nightly
def test_the_tests_pass_against_the_installed_wheel(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    # The newest of both: the checkout's own environment has the oldest.
    newest = combinations()[-1]
    here = tmp_path / "checkout"
    shutil.copytree(checkout, here, ignore=shutil.ignore_patterns("build", "*.egg-*"))
    shutil.rmtree(here / "django_outbox")
    (here / "tests" / "test_installed.py").write_text(ORIGIN, "utf-8")
    variables = environment(python=newest.python.path, folder=tmp_path)
    with Terminal(here, variables) as terminal:
        terminal.run("python3 -m venv ../venv && . ../venv/bin/activate")
        terminal.run(
            f'pip install "{wheel}[{EXTRAS}]" {TOOLS} "Django=={newest.django}.*"'
        )
        # It starts services of its own: the session's databases are in use.
        printed = terminal.run(f"python -m pytest -q {' '.join(CHOSEN)}")
    assert " passed" in printed[-1]
