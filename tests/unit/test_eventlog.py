"""Events as lines: what acceptance tests and log shippers read."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime

import pytest

from django_outbox.events import (
    ConsumerRead,
    LeaderAcquired,
    LeaderFenced,
    MeterRead,
    PartitionsChanged,
    Ready,
    RecordParked,
    SeriesExpired,
)
from django_outbox.observability.eventlog import JsonFormatter, JsonLines, LogLines
from django_outbox.observability.textlog import TextFormatter

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

    assert 'leader_fenced leader_id=a reason="no proof"' == caplog.messages[0]
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


def test_what_a_record_carries_replaces_no_part_of_the_line() -> None:
    record = logging.makeLogRecord(
        {"name": "x", "levelname": "INFO", "msg": "marked"}
        | {"time": "late", "level": "gold", "logger": "mine"}
    )

    line = json.loads(JsonFormatter().format(record))

    assert (line["level"], line["logger"]) == ("INFO", "x")
    assert line["time"] != "late"


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


def test_what_has_no_value_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "django_outbox"):
        LogLines()(Ready(name="n"))
        LogLines()(METER)
    assert "ready" == caplog.messages[0]
    assert "database" not in caplog.messages[1]
    assert "failed=0" in caplog.messages[1]
    assert "rate=1.5 " in caplog.messages[1]


def test_partitions_read_as_a_list(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_outbox"):
        for partitions in (("a/0", "a/1"), ()):
            LogLines()(PartitionsChanged(name="n", group="g", partitions=partitions))
    assert [
        "partitions_changed group=g partitions=a/0,a/1",
        "partitions_changed group=g partitions=none",
    ] == caplog.messages


FORGED = "x\n2026-11-23T20:00:00+00:00 INFO leader_acquired leader_id=\x1b[2Jb"


@pytest.mark.parametrize(
    "event",
    [
        SeriesExpired(
            name="n", leader_id="a", series=FORGED, messages=1, action="park"
        ),
        RecordParked(
            name="n", record_id=1, message_id="m", topic="t", attempts=1, error=FORGED
        ),
        RecordParked(
            name="n", record_id=1, message_id="m", topic=FORGED, attempts=1, error="e"
        ),
    ],
)
def test_a_row_forges_no_line_whatever_formats_it(
    event: SeriesExpired | RecordParked, caplog: pytest.LogCaptureFixture
) -> None:
    """A project's own LOGGING escapes nothing."""
    with caplog.at_level(logging.INFO, "django_outbox"):
        LogLines()(event)
    (text,) = caplog.messages
    assert text.isprintable()
    assert r'"x\n2026-11-23T20:00:00+00:00 INFO' in text
    assert not text.startswith("2026")


def formatted(message: str, *args: object, **attributes: object) -> str:
    record = logging.makeLogRecord(
        {"levelname": "WARNING", "msg": message, "args": args, "created": 0.0}
        | attributes
    )
    return TextFormatter().format(record)


def test_the_text_log_has_the_time_of_everything_else() -> None:
    time, rest = formatted("%s rows", 3).split(" ", 1)
    assert datetime.fromisoformat(time) == datetime.fromtimestamp(0, UTC)
    assert "WARNING 3 rows" == rest


def test_the_text_log_is_one_line_whatever_it_is_given() -> None:
    text = formatted("Record %s failed: %s", 1, FORGED)
    assert text.isprintable()
    assert r"x\n2026-11-23T20:00:00+00:00 INFO" in text


def test_a_traceback_is_indented_so_that_it_forges_no_line() -> None:
    with pytest.raises(ValueError, match="leader_acquired") as caught:
        raise ValueError(FORGED)
    info = (caught.type, caught.value, caught.tb)
    first, *more = formatted("It failed", exc_info=info).split("\n")
    assert first.endswith("WARNING It failed")
    assert "    Traceback (most recent call last):" == more[0]
    assert all(line.startswith("    ") and line.isprintable() for line in more)


def test_lines_that_the_program_writes_stay_lines() -> None:
    text = formatted("Two lines:\n%s", "a\nb\x1b[2J")
    assert ["    a", r"    b\x1b[2J"] == text.split("\n")[1:]
