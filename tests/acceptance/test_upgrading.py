"""From one release to the next and back, without a stop."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from ..machine import nightly
from ..processes import ROOT, Process, manage
from ..services import Topics
from .auditing import Audited, deliveries
from .harvesters import MODES, Harvesters
from .tables import OutboxTable
from .test_on_call import ask
from .writing import Writers

FORMER = "7a6659c1b39b97e261781a053050807c37931646"
"""The commit before the second migration, as if a release had been made of it."""

LAST, BEFORE = "0003_tend_archive", "0001_initial"


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the former release."""
    git = shutil.which("git") or "git"
    packed = subprocess.run(
        [git, "-C", str(ROOT), "archive", FORMER, "django_outbox", "example_project"],
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip("this copy of the project has no history")
    tree = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def start_former(harvesters: Harvesters, former: Path, name: str) -> Process:
    return harvesters.launch(
        name,
        *(sys.executable, str(former / "example_project" / "manage.py")),
        *("runharvester", "--name", name, "--log-format", "json"),
        PYTHONPATH=str(former),
    )


@pytest.fixture
def old_schema(environment: dict[str, str], table: OutboxTable) -> None:
    """The tables as the former release has made them."""
    manage("migrate", "django_outbox", BEFORE, environment=environment)
    assert table.execute("SELECT to_regclass('outbox_pauses')") == [(None,)]


@pytest.mark.parametrize("mode", ["pipelined", pytest.param("ledger", marks=nightly)])
def test_the_former_release_and_this_one_take_turns(
    harvesters: Harvesters,
    table: OutboxTable,
    audited: Audited,
    topic: str,
    former: Path,
    mode: str,
) -> None:
    """The tables are new already; then the new code comes, and goes again."""
    harvesters.environment = {**harvesters.environment, **MODES[mode]}
    leads = start_former(harvesters, former, "old-1")
    leads.wait_for("leader_acquired")
    with Writers(table, topic) as writers:
        for is_new in (True, False):
            writers.wait_for(200)
            if is_new:
                successor = harvesters.start(name="new")
            else:
                successor = start_former(harvesters, former, "old-2")
            successor.wait_for("ready")
            leads.terminate()
            assert leads.exit_code() == 0
            successor.wait_for("leader_acquired")
            leads = successor
        writers.wait_for(200)
    table.wait_until_empty()

    found = audited(writers)
    assert found.broken == {}
    assert found.duplicates == 0
    assert [h.all("leader_fenced") for h in harvesters.all] == [[]] * 3


@pytest.mark.usefixtures("old_schema")
def test_this_release_delivers_before_the_migration_and_after_it(
    harvesters: Harvesters,
    table: OutboxTable,
    topics: Topics,
    topic: str,
    environment: dict[str, str],
) -> None:
    leader = harvesters.start()
    sent = table.insert(topic, "a", count=3)
    table.wait_until_empty()
    code, found = ask(harvesters, "pause", topic)
    assert code == 1
    assert "Run `manage.py migrate" in found["error"]

    with table.connect() as writer, writer.transaction():
        # The migration waits for no writer, and none waits for it.
        writer.execute(
            "INSERT INTO outbox (kafka_topic, kafka_key) VALUES (%s, 'b')", [topic]
        )
        manage("migrate", "django_outbox", LAST, environment=environment)
        writer.execute("DELETE FROM outbox WHERE kafka_key = 'b'")
    assert ask(harvesters, "pause", topic)[0] == 0
    leader.wait_for_log(f"Paused now: {topic}")
    held = table.insert(topic, "a", count=3)
    # Back to the former tables: nothing is paused any more.
    manage("migrate", "django_outbox", BEFORE, environment=environment)
    table.wait_until_empty()
    assert [d.id for d in deliveries(topics.read(topic))] == [*sent, *held]
    assert leader.all("leader_fenced", "leader_revoked") == []
