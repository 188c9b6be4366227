"""A service of django-outbox-pattern, migrated as the how-to says, by both packages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from django_outbox.devstack import Stack

from ..benchmarks.packages import environment as packages
from ..machine import nightly
from ..processes import ROOT, Processes
from ..services import Topics, text_of
from ..waiting import eventually
from .documented import MANAGE, files_of_app
from .tables import OutboxTable, Server, project_environment

PAGE = (ROOT / "docs/howto/from-django-outbox-pattern.md").read_text("utf-8")
DIFFS = re.findall(
    r"^```diff\n--- (.*?)\n\+\+\+ (.*?)\n(.*?)^```",
    PAGE,
    re.MULTILINE | re.DOTALL,
)
(MOVE,) = re.findall(r"^   ```sql\n(.*?)^   ```", PAGE, re.MULTILINE | re.DOTALL)

ABOVE = """\
from urllib.parse import urlsplit
import os

server = urlsplit(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": server.hostname,
        "PORT": server.port or 5432,
        "USER": server.username,
        "PASSWORD": server.password,
        "NAME": server.path.strip("/"),
    }
}
SECRET_KEY = "the test's own"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
"""What the page takes for granted, like the files below."""

COMMON = {
    "manage.py": MANAGE,
    "config/__init__.py": "",
    **dict(files_of_app("shop", {"Order": ("number", "status")})),
    **dict(files_of_app("billing", {"Invoice": ("order",)})),
}

BEFORE = """\
from billing.callbacks import charge
from django_outbox_pattern.models import Published, Received
from django_outbox_pattern.payloads import Payload
from shop.services import place, ship

for number in ("1", "2"):
    place(number)
ship("1", "a carrier")
first, second, shipment = Published.objects.order_by("added")
for message in (first, second):
    received = Received.objects.create(msg_id=str(message.id))
    charge(Payload(None, message.body, {}, received))
second.status = 2
second.save()
print(first.id, shipment.id)
"""
"""Both orders were charged. The process that sent the first message has died before it
could note that, and the shipment waits."""


class Version(NamedTuple):
    """One version of the service."""

    folder: Path
    python: str
    processes: Processes

    def run(self, *arguments: str) -> list[str]:
        """Run a command to its end; return what it has printed."""
        process = self.processes.launch(
            arguments[0], self.python, str(self.folder / "manage.py"), *arguments
        )
        assert process.exit_code() == 0, process.report()
        return process.output

    def execute(self, code: str) -> list[str]:
        """Run code of the service."""
        return self.run("shell", "-c", code)


def side(body: str, sign: str) -> str:
    """One side of a diff of a whole file."""
    lines = body.splitlines()
    return "\n".join(line[1:] for line in lines if line[:1] in ("", " ", sign)) + "\n"


@pytest.fixture
def table(server: Server) -> Iterator[OutboxTable]:
    """A database without tables."""
    table = server.create_empty()
    yield table
    server.drop(table)


@pytest.fixture
def names(topics: Topics) -> dict[str, str]:
    """What the page calls topics, and topics of this test's own."""
    return {
        name: topics.create(f"{name}-{uuid4().hex}") for name in ("orders", "shipments")
    }


@pytest.fixture
def versions(
    tmp_path: Path, table: OutboxTable, services: Stack, names: Mapping[str, str]
) -> Iterator[dict[str, Version]]:
    """The service before and after."""
    made: dict[str, Version] = {}
    theirs = str(packages.ensure(progress=print))
    environment = {
        **project_environment(),
        "DATABASE_URL": table.url,
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    with Processes(environment) as processes:
        for sign, name, python in (
            ("-", "before", theirs),
            ("+", "after", sys.executable),
        ):
            folder = tmp_path / name
            files = dict(COMMON)
            for old, new, body in DIFFS:
                text = side(body, sign).replace(
                    "kafka:9092", services.bootstrap_servers
                )
                for topic, own in names.items():
                    text = text.replace(f'/{topic}"', f'/{own}"')
                    text = text.replace(f'"{topic}"', f'"{own}"')
                files[old if sign == "-" else new] = text
            files["config/settings.py"] = ABOVE + files["config/settings.py"]
            for path, text in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, "utf-8")
            made[name] = Version(folder, python, processes)
        yield made


def test_the_service_changes_in_fewer_than_thirty_lines() -> None:
    changed = [
        line for _, _, body in DIFFS for line in body.splitlines() if line[:1] in "+-"
    ]
    changed = [line for line in changed if line]
    assert len(DIFFS) == 4
    assert f"in {len(changed)} changed lines" in PAGE
    assert len(changed) < 30


@nightly
def test_nothing_is_lost_or_processed_twice_on_the_way(
    versions: dict[str, Version],
    table: OutboxTable,
    topics: Topics,
    names: Mapping[str, str],
) -> None:
    before, after = versions["before"], versions["after"]
    before.run("migrate", "--verbosity", "0")
    ids = before.execute(BEFORE)[-1]
    after.run("migrate", "--verbosity", "0")
    _run_sql(table, MOVE)
    after.execute("from shop.services import place; place('3')")

    for arguments in (("runharvester",), ("runconsumer", "--group", "billing")):
        after.processes.launch(
            arguments[0], after.python, str(after.folder / "manage.py"), *arguments
        )
    table.wait_until_empty()
    orders, shipments = (
        [
            (
                text_of(message.key()),
                text_of(dict(message.headers() or [])["outbox-message-id"]),
            )
            for message in topics.read(names[name])
        ]
        for name in ("orders", "shipments")
    )
    first, shipment = ids.split()
    assert [orders[0], *shipments] == [("1", first), ("1", shipment)]
    assert [key for key, _ in orders] == ["1", "3"]
    eventually(
        lambda: _invoices(table)[-1:] == ["3"], what=lambda: f"{_invoices(table)}"
    )
    assert _invoices(table) == ["1", "2", "3"]


def _invoices(table: OutboxTable) -> list[str]:
    rows = table.execute('SELECT "order" FROM billing_invoice ORDER BY id')
    return [order for (order,) in rows]


def _run_sql(table: OutboxTable, script: str) -> None:
    with table.connect() as connection:
        connection.execute(script.encode())
