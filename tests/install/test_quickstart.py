"""Pages followed to the letter with the newest Python, and nightly with all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from django_outbox.devstack import Stack

from ..machine import NIGHTLY, nightly
from ..processes import ROOT, Process
from ..waiting import eventually
from .conftest import BUILD, QUICKSTART
from .interpreters import Combination, combinations
from .page import Addition, Command, matches, steps
from .terminal import BASH, Terminal, environment

TUTORIAL: Final = ROOT / "docs" / "tutorial.md"

IN_A_SECOND_TERMINAL: Final = "python -m django_outbox.devstack"

INSTALL: Final = "pip install "


class Follower:
    """
    Follows a page in a folder of its own.

    Environments are made side by side. From there on one follower at a time
    works: all use the topic and the groups that the page names.
    """

    def __init__(self, page: Path, services: Stack, wheels: Path) -> None:
        self._page = page
        self._services = services
        self._wheels = wheels
        self._turn = Lock()

    def follow(self, combination: Combination, folder: Path) -> None:
        """Do what the page says; raise AssertionError where that fails."""
        folder.mkdir()
        shutil.copytree(self._wheels, folder / "wheels")
        # Commands that look at the whole folder find the checkout in it, too.
        (folder / "django-outbox").symlink_to(self._wheels.parent / "django-outbox")
        constraint = folder / "constraint.txt"
        constraint.write_text(f"Django=={combination.django}.*\n", "utf-8")
        variables = environment(
            python=combination.python.path,
            folder=folder,
            PIP_CONSTRAINT=str(constraint),
        )
        todo = list(steps(self._page))
        installed = 1 + next(
            number
            for number, step in enumerate(todo)
            if isinstance(step, Command) and step.text.startswith(INSTALL)
        )
        with Terminal(folder, variables) as terminal:
            for step in todo[:installed]:
                self._do(step, folder, terminal, variables)
            (version,) = terminal.run("python -m django --version")
            assert version.startswith(f"{combination.django}.")
            with self._turn, self._database(folder.name) as url:
                services = {
                    **variables,
                    "DATABASE_URL": url,
                    "KAFKA_BOOTSTRAP_SERVERS": self._services.bootstrap_servers,
                }
                for step in todo[installed:]:
                    self._do(step, folder, terminal, services)

    def _do(
        self,
        step: Command | Addition,
        folder: Path,
        terminal: Terminal,
        services: dict[str, str],
    ) -> None:
        if isinstance(step, Addition):
            with (folder / step.path).open("a", encoding="utf-8") as file:
                file.write(f"\n{step.code}")
        elif step.text.startswith(BUILD):
            pass  # the fixture has, by this very command
        elif step.text == IN_A_SECOND_TERMINAL:
            for line in self._ask_devstack(step, folder, services):
                terminal.run(line)
        else:
            printed = terminal.run(step.text)
            for shown in step.shown:
                assert any(matches(shown, line) for line in printed), (
                    f"$ {step.text}\ndid not print\n{shown}\nbut\n" + "\n".join(printed)
                )

    def _ask_devstack(
        self, step: Command, folder: Path, services: dict[str, str]
    ) -> list[str]:
        """Run the devstack, which finds the session's services; return its lines."""
        command = [BASH, "-c", f". .venv/bin/activate; exec {step.text}"]
        with Process("devstack", command, services, cwd=folder) as process:
            eventually(
                lambda: len(process.output) >= len(step.shown), what=process.report
            )
            process.terminate()
            process.exit_code()
        printed = process.output[: len(step.shown)]
        assert all(map(matches, step.shown, printed)), printed
        return printed

    @contextmanager
    def _database(self, name: str) -> Iterator[str]:
        """Make an empty database for one follower, and return its URL."""
        url = self._services.database_url
        server = conninfo_to_dict(url)
        create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(create)
            try:
                yield (
                    f"postgres://{server['user']}:{server.get('password', '')}"
                    f"@{server['host']}:{server.get('port', 5432)}/{name}"
                )
            finally:
                connection.execute(drop)


ALL: Final = combinations()

CHOSEN: Final = ALL if NIGHTLY else ALL[-1:]
"""By day only the newest: a checkout has the oldest."""


@pytest.fixture(scope="module")
def followed(
    request: pytest.FixtureRequest,
    services: Stack,
    wheels: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[None]]]:
    """What became of each combination that was asked for."""
    asked: list[Combination] = [
        item.callspec.params["combination"]  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_the_quickstart_works_as_printed
    ]
    folder = tmp_path_factory.mktemp("quickstart")
    follower = Follower(QUICKSTART, services, wheels)
    with ThreadPoolExecutor(min(len(asked), os.cpu_count() or 1)) as executor:
        yield {
            str(one): executor.submit(follower.follow, one, folder / str(one))
            for one in asked
        }
        executor.shutdown(cancel_futures=True)


@pytest.mark.parametrize("combination", CHOSEN, ids=str)
def test_the_quickstart_works_as_printed(
    combination: Combination, followed: dict[str, Future[None]]
) -> None:
    followed[str(combination)].result()


def test_the_tutorial_tests_the_readers_files_only() -> None:
    """The checkout lies in the reader's folder, with tests of its own."""
    texts = [step.text for step in steps(TUTORIAL) if isinstance(step, Command)]
    (command,) = [text for text in texts if text.startswith("pytest ")]
    assert command.endswith(" test_shop.py")


@nightly
def test_the_tutorial_works_as_printed(
    services: Stack, wheels: Path, tmp_path: Path
) -> None:
    follower = Follower(TUTORIAL, services, wheels)
    follower.follow(ALL[-1], tmp_path / "tutorial")
