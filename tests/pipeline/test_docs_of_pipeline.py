"""The how-to of the pipeline, followed from its first command to its last."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from django_outbox.devstack import Stack

from ..acceptance.tables import OutboxTable, Server
from ..install.page import BLOCK
from ..install.terminal import BASH, Terminal, environment
from ..machine import nightly
from ..processes import ROOT, Process, manage
from ..services import Topics, own_kafka
from ..waiting import eventually

PAGE = ROOT / "docs/howto/pipeline.md"

TESTED_ELSEWHERE = (
    "pip install",
    "python3 example_project/demo.py",
    "spark-submit",
    "SPARK_REMOTE=",
    "python -m django_outbox.pipeline register",
)
"""How commands begin that need an installation, a cluster, a metastore or minutes."""

RUN = "python -m django_outbox.pipeline run --config pipeline.toml"

TOPICS = ("orders", "order-audit", "payments")
"""The page's names; the broker is this test's own."""


@pytest.fixture
def kafka() -> Iterator[str]:
    """The address of a Kafka with the page's topics."""
    with own_kafka() as address:
        for topic in TOPICS:
            Topics(address).create(topic)
        yield address


@pytest.fixture
def shop(services: Stack) -> Iterator[OutboxTable]:
    """The shop's database, without tables."""
    server = Server(services.database_url)
    shop = server.create_empty()
    yield shop
    server.drop(shop)
    server.close()


class Follower:
    """
    Types what the page has, in one terminal.

    Args:
        shop: Variables of the example project.
    """

    def __init__(
        self, folder: Path, variables: Mapping[str, str], shop: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._variables = variables
        self._shop = shop

    def follow(self, text: str) -> list[str]:
        """
        Do all commands of a text, and use its first file and its first code.

        Returns:
            The lines that the commands have printed.
        """
        printed: list[str] = []
        code = 0
        with Terminal(self._folder, self._variables) as terminal:
            for language, block in BLOCK.findall(text):
                if block.startswith("# pipeline.toml"):
                    (self._folder / "pipeline.toml").write_text(block)
                elif language == "python" and not code:
                    code += 1
                    (self._folder / "read_it.py").write_text(block)
                    printed += terminal.run("python read_it.py")
                elif language == "console" and block.startswith("$ "):
                    for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                        printed += self._type(command, terminal)
        return printed

    def _type(self, command: str, terminal: Terminal) -> list[str]:
        if command.startswith(TESTED_ELSEWHERE):
            return []
        text, *shown = command.splitlines()
        while text.count('"') % 2:
            text += f"\n{shown.pop(0)}"
        if " --every " in text:
            self._watch(text.partition("#")[0])
            return []
        printed = terminal.run(text)
        begins = {begin_of(line) for line in printed}
        for line in filter(None, shown):
            assert begin_of(line) in {*begins, "..."}, (line, printed)
        return printed

    def _watch(self, text: str) -> None:
        """Run a command until it has said something, and end it."""
        with Process(
            text, [BASH, "-c", f"exec {text}"], self._variables, cwd=self._folder
        ) as process:
            # A run has nothing to tell until there is something to read.
            place(1, self._shop)
            eventually(
                lambda: process.output or process.events,
                timeout=300,
                what=process.report,
            )
            process.terminate()
            assert process.exit_code() == 0, process.report()


def begin_of(line: str) -> str:
    """What a line begins with, without its numbers and times, which are of a day."""
    if line.startswith("verdict:"):
        return line
    return re.sub(r"\d[\d,]*", "0", re.split(r"[ :]", line)[0])


def place(count: int, shop: Mapping[str, str]) -> None:
    """Place orders, and publish them."""
    code = f"""
from shop import orders
for n in range({count}):
    orders.place(customer=f"c{{n}}", sku="TEA-1", quantity=1, amount=n)
"""
    manage("shell", "--no-imports", "-c", code, environment=shop)
    manage("runharvester", "--drain", environment=shop)


@nightly
def test_the_page_works_as_printed(
    kafka: str, shop: OutboxTable, tmp_path: Path
) -> None:
    text = PAGE.read_text("utf-8")
    lake = tmp_path / "service" / "lake"
    for printed, ours in {
        "/var/lib/outbox/lake": str(lake),
        "/var/lib/node_exporter/outbox.prom": str(tmp_path / "outbox.prom"),
        "kafka:9092": kafka,
        "postgres://audit:secret@db/shop": shop.url,
        # The key of an order that was placed.
        "customer-4711": "1",
    }.items():
        assert printed in text
        text = text.replace(printed, ours)
    first, _, service = text.partition("\n## Run it\n")
    service, _, audits = service.partition("\n## Audit it\n")
    audits, _, audits_of_new = audits.partition("\nWith years in the lake")
    audits_of_new, _, care = audits_of_new.partition("\n## Keep it in shape\n")
    care, _, _ = care.partition("\n## Schedule it\n")
    (tmp_path / "example_project").symlink_to(ROOT / "example_project")
    programs = Path(sys.executable).parent
    stranger = environment(
        python=Path(sys.executable),
        folder=tmp_path,
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
    )
    project = {
        **stranger,
        "DATABASE_URL": shop.url,
        "KAFKA_BOOTSTRAP_SERVERS": kafka,
        # The source of the messages, in pipeline.toml.
        "OUTBOX_LEADER_GROUP": "shop-outbox",
    }
    archived = {**project, "OUTBOX_ARCHIVE": "1"}

    Follower(tmp_path, project, archived).follow(first)
    assert "Nothing lost" in (tmp_path / "audit.html").read_text()

    # The page exports the database's address in its first command of a service.
    stranger["DATABASE_URL"] = shop.url
    follower = Follower(tmp_path, stranger, archived)
    follower.follow(service)
    assert "lag_records" in (tmp_path / "outbox.prom").read_text()
    follower.follow(audits)
    assert "Nothing lost" in (tmp_path / "audit.html").read_text()

    place(10, archived)
    follower.follow("```console\n$ " + RUN + "\n```\n" + audits_of_new)
    lines = follower.follow(care)
    assert [line for line in lines if re.match(r"silver: [1-9]\d* rows", line)]
