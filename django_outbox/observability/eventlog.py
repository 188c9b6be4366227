"""
Events and the log as lines.

One JSON object a line for each event: what acceptance tests and log shippers read.

`runharvester --log-format json` writes events to standard output with
`JsonLines`, and everything else that is logged to standard error with
`JsonFormatter`, so that the two never mix. `LogLines` is the same for people.
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
"""Attributes that every log record has: not part of `extra`."""


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
        # One write, so that lines of several threads cannot interleave.
        self._stream.write(json.dumps(as_json(event)) + "\n")
        self._stream.flush()


class LogLines:
    """
    Observer that writes each event as a log message for people.

    Text of rows, like the name of a series, is escaped here and not only in
    `TextFormatter`: a project's own LOGGING has a formatter of its own.

    Args:
        has_line: a live line shows a consumer's readings already.
    """

    def __init__(self, *, has_line: bool = False) -> None:
        self._quiet = {"meter_read"} | ({"consumer_read"} if has_line else set())

    def __call__(self, event: WorkerEvent) -> None:
        values = as_json(event)
        kind = values.pop("event")
        for common in ("name", "shard", "boottime_ns", "time"):
            values.pop(common, None)
        details = [f"{k}={_shown(v)}" for k, v in values.items() if v not in {None, ""}]
        level = logging.DEBUG if kind in self._quiet else logging.INFO
        logger.log(level, "%s", " ".join([kind, *details]), extra={"action": kind})


def _shown(value: Any) -> str:
    """Write a value so that it ends where it seems to end."""
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    text = str(value)
    is_quoted = bool(set(text) & set(' "='))
    return printable(json.dumps(text, ensure_ascii=False) if is_quoted else text)


class JsonFormatter(logging.Formatter):
    """One JSON object for each log record, with the keys of `extra` in it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _PLAIN}
        if record.exc_info:
            line["exception"] = shortened(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
