"""The fixtures that a project's own tests get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import transaction
from django.db.models import Model
from pytest_django import Settings

from django_outbox import stash, testing
from django_outbox.devstack import Stack
from django_outbox.testing.plugin import Stashed

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def test_stashed_shows_what_waits_oldest_first(stashed: Stashed) -> None:
    stash("orders", key="1", value="a")
    stash("audit", key="1", value="b")
    stash("orders", key="1", value=None)

    assert ["a", "b", None] == [record.kafka_value for record in stashed()]
    assert ["a", None] == [record.kafka_value for record in stashed("orders")]


def test_stashed_forgets_what_was_rolled_back(stashed: Stashed) -> None:
    with transaction.atomic():
        stash("orders", key="1", value=None)
        transaction.set_rollback(True)

    assert [] == stashed()


def test_stashed_reads_another_database(stashed: Stashed) -> None:
    with transaction.atomic("other"):
        stash("orders", key="1", value=None, using="other")

    assert [] == stashed()
    assert 1 == len(stashed(using="other"))


def test_stashed_reads_the_database_of_the_setting(
    stashed: Stashed, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"DATABASE": "other"}
    with transaction.atomic("other"):
        stash("orders", key="1", value=None)

    assert 1 == len(stashed())
    assert [] == stashed(using="default")


class ReadsElsewhere:
    """A router to a replica."""

    def db_for_read(self, model: type[Model], **_: object) -> str:
        return "other"

    def db_for_write(self, model: type[Model], **_: object) -> str:
        return "default"


def test_stashed_reads_where_messages_are_written(
    stashed: Stashed, settings: Settings
) -> None:
    settings.DATABASE_ROUTERS = [f"{__name__}.ReadsElsewhere"]
    with transaction.atomic():
        stash("orders", key="1", value=None)

    assert 1 == len(stashed())


def test_the_devstack_has_two_addresses(services: Stack, devstack: Stack) -> None:
    assert services.bootstrap_servers == devstack.bootstrap_servers
    assert devstack.database_url.startswith("postgres")


@pytest.mark.parametrize(
    ("is_installed", "outcome"), [(False, "1 skipped"), (True, "1 error")]
)
def test_without_the_extra_what_needs_servers_is_skipped(
    tmp_path: Path, *, is_installed: bool, outcome: str
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(devstack):\n    assert devstack")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nif not {is_installed}:\n    sys.modules['jgo'] = None"
    )
    environment = {"DEVSTACK_SOURCES": "environment", "DATABASE_URL": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-p", "no:django"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert outcome in ended.stdout
    assert "set DATABASE_URL" in ended.stdout
    shows_command = "pip install 'django-outbox-kafka[devstack]'" in ended.stdout
    assert shows_command is not is_installed


def test_the_plugin_imports_little() -> None:
    """pytest loads it in every run of a project, whatever is tested."""
    code = (
        "import sys, django_outbox.testing.plugin as p;"
        "print([m for m in ('django', 'psycopg', 'confluent_kafka') if m in sys.modules"
        "] + [m for m in sys.modules if m.startswith('django_outbox.')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    loaded = "['django_outbox.testing', 'django_outbox.testing.plugin']"
    assert ended.stdout.strip() == loaded


@pytest.mark.parametrize("name", testing.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(testing, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'laed'"):
        getattr(testing, "laed")  # noqa: B009
