"""The report of `manage.py outbox doctor`: what can lose data, and the cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

from django.db import connections

from ..conf import settings
from ..kafka.cluster_reader import ClusterReader
from ..kafka.config import producer_config
from ..kafka.validation import check_properties
from ..models import OutboxRecord
from ..operations.examination import Request, examine
from ..operations.finding import Finding, Level
from ..postgres.connection import Database, Limits, params_of
from ..postgres.health_reader import HealthReader
from ..wording import count


def report(
    alias: str, *, longest_stop: float, role: str = "", ignored: Collection[str] = ()
) -> dict[str, Any]:
    """
    Examine the outbox in a database and its Kafka; return findings, ready for JSON.

    Args:
        alias: of the database.
        longest_stop: seconds for which a consumer may stop.
        role: the harvester's role; by default the role of the connection.
        ignored: names of findings to leave out.

    Raises:
        ConfigurationError: a property in KAFKA is wrong.
    """
    options = replace(settings.snapshot(), DATABASE=alias)
    check_properties(options)
    database = Database(
        params_of(connections[alias]),
        application_name="outbox doctor",
        limits=Limits.within(options.DATABASE_DEADLINE),
    )
    request = Request(
        options=options,
        producer=producer_config(options),
        longest_stop=longest_stop,
        role=role,
    )
    health = HealthReader(database, table=OutboxRecord._meta.db_table)
    with closing(health):
        found = examine(request, health, ClusterReader(options))
    shown = [one for one in found.findings if one.kind.name not in ignored]
    levels = Counter(one.kind.level for one in shown)
    return {
        "errors": levels[Level.ERROR],
        "warnings": levels[Level.WARNING],
        "findings": [_plain(finding) for finding in shown],
        "topics": list(found.topics),
        "has_database": found.has_database,
        "brokers": found.brokers,
    }


def describe(found: dict[str, Any]) -> Iterator[str]:
    """Describe the report in lines: each kind once, then where, then its cure."""
    for name, group in groupby(found["findings"], key=lambda one: one["name"]):
        findings = list(group)
        first = findings[0]
        yield f"{first['level']:<8} {name}"
        yield f"  {first['risk']}"
        for one in findings:
            yield f"  - {one['subject']}: {one['seen']}"
            yield f"    cure: {one['cure']}"
        yield ""
    looked = [f"the database {found['database']}"] if found["has_database"] else []
    if found["brokers"]:
        topics = count(len(found["topics"]), "topic")
        looked.append(f"{topics} on {count(found['brokers'], 'broker')}")
    yield f"examined {' and '.join(looked) or 'only the settings'}: {conclude(found)}"


def conclude(found: dict[str, Any]) -> str:
    """Return the numbers: `2 errors, 1 warning`."""
    if not found["findings"]:
        return "no findings"
    errors, warnings = found["errors"], found["warnings"]
    return f"{count(errors, 'error')}, {count(warnings, 'warning')}"


def _plain(finding: Finding) -> dict[str, str]:
    return {
        "name": finding.kind.name,
        "level": finding.kind.level.value,
        "subject": finding.subject,
        "seen": finding.seen,
        "risk": finding.kind.risk,
        "cure": finding.cure,
    }
