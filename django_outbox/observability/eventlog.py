"""
Events and the log as lines.

With `--log-format json`, `JsonLines` writes each event to standard output as one
JSON object a line, and `JsonFormatter` the rest of the log to standard error, so
that the two never mix. `LogLines` writes events as log messages for people.
"""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TextIO

from ..events import WorkerEvent
from ..wording import printable
from .textlog import shortened

logger = logging.getLogger(__name__)

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes that every log record has; the others come from `extra`."""


def as_json(event: WorkerEvent) -> dict[str, Any]:
    """
    Return the event as JSON-ready values.

    Keys: `event` (its kind), `name`, `boottime_ns`, `time` (RFC 3339); of a
    harvester also `shard` and `leader_id` (or None); then the fields of its
    own class.
    """
    values = {f.name: getattr(event, f.name) for f in fields(event)}
    values["time"] = event.time.isoformat()
    return {"event": event.kind, **values}


class JsonLines:
    """Observer that writes each event as one line and flushes it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: WorkerEvent) -> None:
        # A single write, so that lines of several threads do not interleave.
        self._stream.write(json.dumps(as_json(event)) + "\n")
        self._stream.flush()


class LogLines:
    """
    Observer that writes each event as a log message for people.

    Text of rows, such as the name of a series, is escaped here and not only in
    `TextFormatter`: a project's own LOGGING has its own formatter.

    Args:
        has_line: a live line already shows a consumer's readings.
    """

    def __init__(self, *, has_line: bool = False) -> None:
        self._quiet = {"meter_read"} | ({"consumer_read"} if has_line else set())

    def __call__(self, event: WorkerEvent) -> None:
        values = as_json(event)
        kind = values.pop("event")
        for common in ("name", "boottime_ns", "time"):
            values.pop(common, None)
        if not values.get("shard"):
            # Mostly it is the only one.
            values.pop("shard", None)
        details = [f"{k}={_shown(v)}" for k, v in values.items() if v not in {None, ""}]
        level = logging.DEBUG if kind in self._quiet else logging.INFO
        logger.log(level, "%s", " ".join([kind, *details]), extra={"action": kind})


def _shown(value: Any) -> str:
    """Format a value; quote it if it contains a delimiter."""
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    text = str(value)
    is_quoted = bool(set(text) & set(' "='))
    return printable(json.dumps(text, ensure_ascii=False) if is_quoted else text)


class JsonFormatter(logging.Formatter):
    """One JSON object for each log record, including the keys of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = _PLAIN | line.keys()
        line |= {k: v for k, v in vars(record).items() if k not in known}
        if record.exc_info:
            line["exception"] = shortened(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
