"""
Act 2: the topics become lake tables, and an audit checks them.

`prove()` ingests, refines and audits the published messages. `expose()` does
the same with a copy of one topic that has deliberate faults, to show that the
audit finds exactly those. Both write an HTML report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.db import connection
from shop import orders

from django_outbox.management.commands.outbox_pipeline import defaults
from django_outbox.pipeline.audit.comparison import audit
from django_outbox.pipeline.audit.page import page
from django_outbox.pipeline.audit.report import WRONG, Report
from django_outbox.pipeline.audit.verdict import judge
from django_outbox.pipeline.pipeline_run import run_once
from django_outbox.pipeline.pipeline_settings import PipelineSettings, build

from .ledger import headers, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN_TOPIC = f"{orders.AUDIT}-broken"

REMOVED, DOUBLED, SWAPPED = 3, 4, 2
"""Faults of the copy: removed messages, duplicated messages, swapped pairs."""

EXPECTED = {"lost": REMOVED, "copies": DOUBLED, "disorder": SWAPPED}
"""Exactly what the audit must find in the copy."""


def lake_settings(folder: Path) -> PipelineSettings:
    """Return the project's settings, with the tables in this folder."""
    topics = [orders.ORDERS, orders.AUDIT]
    return build({**defaults(), "lake": str(folder / "lake"), "topics": topics})


def prove(spark: SparkSession, settings: PipelineSettings, report: Path) -> Report:
    """Load the topics into the lake, audit, and write the HTML page `report`."""
    run_once(spark, settings, stop=threading.Event())
    found = audit(spark, settings)
    report.write_text(page(found, judge(found), made=datetime.now(UTC)), "utf-8")
    return found


def copied(settings: PipelineSettings) -> PipelineSettings:
    """Return the settings for a copy of one topic, with a lake of its own."""
    return replace(
        settings,
        lake=f"{settings.lake}-broken",
        topics=(BROKEN_TOPIC,),
        table="broken",
    )


def expose(spark: SparkSession, settings: PipelineSettings, report: Path) -> Report:
    """Make a faulty copy of one topic and of its archive, and audit it."""
    _copy_archive()
    copy_topic(settings, break_some)
    return prove(spark, copied(settings), report)


def wrong(report: Report) -> dict[str, int]:
    """Return the problems in a report: name and count."""
    return {name: count for name in WRONG if (count := report.total(name))}


def _copy_archive() -> None:
    """Copy the archive, so that the database says that every message was sent."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE broken (LIKE outbox)")
        cursor.execute("CREATE TABLE broken_parked (LIKE outbox_parked)")
        cursor.execute(
            "CREATE TABLE broken_archive AS"
            " SELECT * FROM outbox_archive WHERE kafka_topic = %s",
            [orders.AUDIT],
        )
        cursor.execute("UPDATE broken_archive SET kafka_topic = %s", [BROKEN_TOPIC])


def copy_topic(
    settings: PipelineSettings,
    change: Callable[[list[Message]], list[Message]] = lambda messages: messages,
) -> None:
    """Create the copy's topic and send each message once, but for the `change`."""
    bootstrap_servers = settings.kafka["bootstrap.servers"]
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap_servers
    }
    firsts = {_id(m): m for m in reversed(read(bootstrap_servers, orders.AUDIT))}
    messages = sorted(firsts.values(), key=lambda m: (m.partition(), m.offset()))
    partitions = 1 + max(m.partition() or 0 for m in messages)
    topic = NewTopic(BROKEN_TOPIC, num_partitions=partitions)
    admin = AdminClient(config)
    admin.create_topics([topic])[BROKEN_TOPIC].result(60)
    producer = Producer(config)
    for message in change(messages):
        producer.produce(
            BROKEN_TOPIC,
            key=message.key(),
            value=message.value(),
            headers=message.headers(),
            partition=message.partition() or 0,
            timestamp=message.timestamp()[1],
        )
        producer.poll(0)
    producer.flush()


def break_some(messages: list[Message]) -> list[Message]:
    """Remove, swap and duplicate some messages; at most one fault per message."""
    place = {_id(message): at for at, message in enumerate(messages)}
    keys: dict[bytes | str | None, list[Message]] = {}
    for message in messages:
        keys.setdefault(message.key(), []).append(message)
    pairs = [(of_key[0], of_key[1]) for of_key in keys.values() if len(of_key) > 1]
    for first, second in pairs[:SWAPPED]:
        a, b = place[_id(first)], place[_id(second)]
        messages[a], messages[b] = messages[b], messages[a]
    swapped = {_id(message) for pair in pairs[:SWAPPED] for message in pair}
    whole = [message for message in messages if _id(message) not in swapped]
    removed = {_id(message) for message in whole[:REMOVED]}
    doubled = {_id(message) for message in whole[-DOUBLED:]}
    return [
        message
        for message in messages
        for _ in range(2 if _id(message) in doubled else 1)
        if _id(message) not in removed
    ]


def _id(message: Message) -> str:
    return headers(message)["outbox-message-id"]
