"""The how-to on retries: its handler runs while the bank is away."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

import psycopg
from confluent_kafka import Producer

from django_outbox.contrib.retry_topics import retry_topic

from ..processes import ROOT, Processes
from ..services import Topics
from ..waiting import eventually

PAGE = (ROOT / "docs/howto/retries.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n# billing/consumers.py\n(.*?)```", PAGE, re.DOTALL)

SETTINGS = """
from tests.consumer_settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "billing"]
"""

BANK = """
from pathlib import Path

CALLS = Path(__file__).with_name("calls")


def charge(order, total, *, key):
    with CALLS.open("a") as calls:
        calls.write(f"{order} {total} {key}\\n")
    if len(CALLS.read_text().splitlines()) < 3:
        raise ConnectionError("the bank is away")
    return "done"
"""


def test_the_handler_is_retried_as_the_page_says(
    child_environment: dict[str, str],
    topics: Topics,
    tmp_path: Path,
    postgres: psycopg.Connection,
) -> None:
    topic, group = topics.create(), f"g-{uuid4().hex[:8]}"
    for number in (1, 2):
        topics.create(retry_topic(topic, group, number))
    (code,) = BLOCKS
    for old, new in {
        '"orders"': repr(topic),
        '"billing"': repr(group),
        "minutes=1": "seconds=0.3",
        "hours=1": "seconds=0.3",
    }.items():
        assert code.count(old) == 1
        code = code.replace(old, new)
    app = tmp_path / "billing"
    app.mkdir()
    (tmp_path / "page_settings.py").write_text(SETTINGS)
    for name, text in {"__init__": "", "bank": BANK, "consumers": code}.items():
        (app / f"{name}.py").write_text(text)
    producer = Producer({"bootstrap.servers": topics.servers})
    producer.produce(topic, json.dumps({"total": 42}), "17")
    assert producer.flush(15) == 0
    environment = {
        **child_environment,
        "DJANGO_SETTINGS_MODULE": "page_settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    with Processes(environment) as processes:
        command = (sys.executable, "-m", "django", "runconsumer")
        process = processes.launch("billing", *command, "--log-format", "json")
        rows = "SELECT kafka_topic, kafka_key, kafka_value FROM outbox"
        found = eventually(
            lambda: postgres.execute(rows).fetchall(),
            what=lambda: f"a payment\n{process.report()}",
        )
        process.terminate()
        assert process.exit_code() == 0
    assert found == [("payments", "17", '{"payment":"done"}')]
    # The bank can recognise a payment that it is asked for again.
    (call,) = set((app / "calls").read_text().splitlines())
    assert call.startswith(f"17 42 {topic}/0/0@")


def test_the_page_names_the_topics_that_the_example_has() -> None:
    names = [retry_topic("orders", "billing", number) for number in (1, 2)]
    for name in (*names, "orders.dlt"):
        assert f"| `{name}` |" in PAGE
        assert f"--create --topic {name} " in PAGE
    assert set(re.findall(r"orders\.billing\.[\w-]+", PAGE)) == set(names)
