"""Events as lines: what acceptance tests and log shippers read."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from datetime import datetime

import pytest
from rich.console import Console

from django_outbox.events import (
    ConsumerRead,
    ConsumerReady,
    LeaderAcquired,
    LeaderFenced,
    MeterRead,
    Ready,
)
from django_outbox.observability.eventlog import JsonFormatter, JsonLines, LogLines
from django_outbox.observability.terminal import ConsumerLine

METER = MeterRead(
    name="n",
    leader_id="a",
    rate=1.5,
    purged=3,
    failed=0,
    in_flight=2,
    blocked_keys=0,
    backlog=9,
    is_backlog_capped=False,
    oldest_age=0.25,
    receiver_errors=0,
)


def test_a_line_has_the_keys_of_the_contract() -> None:
    stream = io.StringIO()

    JsonLines(stream)(LeaderAcquired(name="n", leader_id="a"))

    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert {"event", "name", "shard", "leader_id", "boottime_ns", "time"} == set(line)
    assert ("leader_acquired", "n", 0, "a") == (
        line["event"],
        line["name"],
        line["shard"],
        line["leader_id"],
    )
    assert isinstance(line["boottime_ns"], int)
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_leader_id_is_null_without_a_leader() -> None:
    stream = io.StringIO()

    JsonLines(stream)(Ready(name="n"))

    assert json.loads(stream.getvalue())["leader_id"] is None


def test_a_line_holds_the_fields_of_its_event() -> None:
    stream = io.StringIO()

    JsonLines(stream)(METER)

    assert 1.5 == json.loads(stream.getvalue())["rate"]


def test_people_read_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_outbox"):
        LogLines()(LeaderFenced(name="n", leader_id="a", reason="no proof"))

    assert "leader_fenced leader_id=a reason=no proof" == caplog.messages[0]
    assert "leader_fenced" == caplog.records[0].__dict__["action"]


def test_meter_readings_do_not_fill_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_outbox"):
        LogLines()(METER)

    assert [] == caplog.messages


def test_the_log_keeps_the_machine_readable_part() -> None:
    record = logging.makeLogRecord(
        {"name": "x", "levelname": "INFO", "msg": "marked %s", "args": (3,)}
        | {"action": "mark", "records": 3}
    )

    line = json.loads(JsonFormatter().format(record))

    assert ("marked 3", "mark", 3) == (line["message"], line["action"], line["records"])


READ = ConsumerRead(
    name="n",
    group="billing",
    rate=10.0,
    processed=7,
    repeats=1,
    failed=0,
    dead_letters=0,
    lag=30,
)


def test_a_consumers_line_has_a_group_and_no_leader() -> None:
    stream = io.StringIO()
    JsonLines(stream)(READ)
    line = json.loads(stream.getvalue())
    assert {"event", "name", "group", "boottime_ns", "time", "lag"} < set(line)
    assert not {"shard", "leader_id"} & set(line)


def test_a_consumers_reading_is_logged_unless_a_line_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, "django_outbox"):
        LogLines()(READ)
        LogLines(has_line=True)(READ)
    assert [record.levelno for record in caplog.records] == [
        logging.INFO,
        logging.DEBUG,
    ]
    assert "lag=30" in caplog.text


def test_the_live_line_of_a_consumer_shows_what_is_left() -> None:
    console = Console(file=io.StringIO(), width=200)
    line = ConsumerLine(console)
    assert "joining" in str(line._render())
    line(ConsumerReady(name="n", group="billing"))
    line(READ)
    shown = str(line._render())
    assert "consuming" in shown
    assert "10 messages/s" in shown
    assert "lag       30" in shown
    assert "3 s" in shown
    assert "failed" not in shown
    line(replace(READ, failed=2, dead_letters=1))
    assert "dead letters 1" in str(line._render())
