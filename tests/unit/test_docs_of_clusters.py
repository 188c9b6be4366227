"""The page of several clusters shows the statements that the tests run."""

from __future__ import annotations

from pathlib import Path

from django_outbox.devstack import replication

PAGE = (
    Path(__file__).resolve().parents[2] / "docs/howto/several-clusters.md"
).read_text("utf-8")


def test_the_statements_are_those_of_the_servers_in_the_tests() -> None:
    shown = " ".join(PAGE.split())
    shown_names = {
        "table": "outbox",
        "publication": "outbox_of_1",
        "name": "outbox_1_to_0",
        "password": "…",
        "address": "host=db-1 dbname=shop user=replicator password=…",
    }
    for statement in (replication._ROLE, replication._SUBSCRIBE):
        run = " ".join(statement.format(**shown_names).replace('"', "").split())
        assert f"{run};" in shown
    first = {**shown_names, "publication": "outbox_of_0"}
    assert f"{replication._PUBLISH.format(**first)};" in PAGE
