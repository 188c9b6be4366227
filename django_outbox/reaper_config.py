"""
Maps goharvest's keys onto the settings of an outbox.

Comes after `reaper_file.py`, which has read the file; `reaper.py` builds a
harvester of the result. A key that means something here is taken over, a key
that means nothing here is accepted with a notice that says why, and an unknown
key is an error, so that a file of goharvest's reaper works as it is.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .exceptions import ConfigurationError
from .options import OutboxSettings
from .postgres.connection import Database
from .reaper_file import Section
from .rules import OWNED_KAFKA_KEYS, problems

DATA_SOURCE: Final = "host=localhost port=5432 user=postgres dbname=postgres sslmode=disable"
"""goharvest's own default."""

LIMITS: Final = {
    "drainInterval": "a busy key's records wait in a queue of their own",
    "heartbeatTimeout": "",
    "ioErrorBackoff": "the pause after a database error grows from 0.1 s to 1 s",
    "markBackoff": "",
    "markQueryRecords": "",
    "maxInFlightRecords": "",
    "maxPollInterval": "leadership is looked at before each record is sent",
    "minMetricsInterval": "",
    "minPollInterval": "",
    "pollDuration": "the election waits for the broker, it does not poll in turns",
    "queueTimeout": "a busy key's records wait in a queue of their own",
    "sendBuffer": "there is one producer, with librdkafka's queue",
    "sendConcurrency": "one producer sends for all keys at the same time",
}
"""The keys of `limits`, each with the reason when it means nothing here."""

HARVEST: Final = (
    "baseKafkaConfig",
    "dataSource",
    "leaderGroupID",
    "leaderTopic",
    "limits",
    "name",
    "outboxTable",
    "producerKafkaConfig",
)
"""The keys below `harvest`, which may also stand at the top level."""

LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
"""goharvest's log levels."""

_DEFAULTS: Final = OutboxSettings()

_ELECTION_KAFKA: Final = frozenset(
    {"group.id", "heartbeat.interval.ms", "max.poll.interval.ms", "session.timeout.ms"}
)
"""Consumer properties that have a setting here."""

_DELIVERY_KAFKA: Final = ("delivery.timeout.ms", "message.timeout.ms")
"""librdkafka's two names of one producer property that has a setting here."""

_SETTING_NAME: Final = re.compile(r"\b[A-Z]{3,}(?:_[A-Z]+)*\b")

_IDENTIFIER: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_$]*)|"([^".\0]+)"')

_EMPTY_VALUE: Final = re.compile(r"('(?:\\.|[^'\\])*')|(\w+)\s*=\s+(?=\w+\s*=)")
"""A quoted value, or a keyword without a value before the next keyword."""


class Notice(NamedTuple):
    """What the person who wrote the file should know of a key."""

    level: int
    """As in `logging`."""
    key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperConfig:
    """What a reaper.yaml says."""

    options: OutboxSettings
    data_source: str
    """A conninfo string or URL, which libpq accepts."""
    table: str
    """Name of the outbox table as the catalogue has it, perhaps with its schema."""
    name: str | None
    """Of the process in logs and events."""
    level: int
    """Of the log, as in `logging`."""
    notices: tuple[Notice, ...]


def configure(document: Mapping[str, Any]) -> ReaperConfig:
    """
    Turn the mapping of a reaper.yaml into settings.

    Raises:
        ConfigurationError: with one line that names the file's key.
    """
    top = Section(document, known=("harvest", "logging", *HARVEST))
    strays = [name for name in HARVEST if name in document]
    if "harvest" in document and strays:
        raise ConfigurationError(f"{strays[0]}: move it below 'harvest'.")
    harvest = top.section("harvest", known=HARVEST) if "harvest" in document else top
    mapping = _Mapping(harvest)
    mapping.name_election()
    mapping.time_election()
    mapping.limit()
    mapping.configure_kafka()
    return ReaperConfig(
        options=mapping.settings(),
        data_source=_data_source(harvest, mapping.notices),
        table=_table(harvest),
        name=harvest.text("name"),
        level=_level(top.section("logging", known=("level",))),
        notices=tuple(mapping.notices),
    )


class _Mapping:
    """The settings as they come together, each with the key that it is from."""

    def __init__(self, harvest: Section) -> None:
        self.notices: list[Notice] = []
        self._harvest = harvest
        self._limits = harvest.section("limits", known=LIMITS)
        self._base = harvest.section("baseKafkaConfig")
        self._producer = harvest.section("producerKafkaConfig")
        self._values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}

    def settings(self) -> OutboxSettings:
        """Check and return them; a problem is told in the file's words."""
        for problem in problems(self._values):
            line = f"{problem.setting}: {problem.message}"
            raise ConfigurationError(
                _SETTING_NAME.sub(lambda m: self._keys.get(m[0], m[0]), line)
            )
        return OutboxSettings(**self._values)

    def name_election(self) -> None:
        harvest, base = self._harvest, self._base
        topic = harvest.text("leaderTopic")
        group = harvest.text("leaderGroupID") or base.text("group.id")
        if not group:
            group = topic or _DEFAULTS.LEADER_GROUP
            self._warn(
                harvest.key("leaderGroupID"),
                f"is not set, {group!r} is used; name one for each outbox table, "
                "or two outboxes disturb each other",
            )
        if not topic:
            is_default = group == _DEFAULTS.LEADER_GROUP
            topic = _DEFAULTS.LEADER_TOPIC if is_default else f"neli.{group}"
            self._warn(harvest.key("leaderTopic"), f"is not set, {topic!r} is used")
        if topic.startswith("__"):
            raise ConfigurationError(
                f"{harvest.key('leaderTopic')}: {topic!r} is Kafka's own; name a topic "
                "to which heartbeats can be written."
            )
        self._set("LEADER_TOPIC", topic, harvest.key("leaderTopic"))
        self._set("LEADER_GROUP", group, harvest.key("leaderGroupID"))

    def time_election(self) -> None:
        """Keep the rules that keep two leaders apart, whichever keys there are."""
        limits, base = self._limits, self._base
        heartbeat = limits.duration("heartbeatTimeout")
        session = self._taken(base, "session.timeout.ms")
        if session is None:
            # Three times as in goharvest, and never below a stock broker's least.
            session = max(_DEFAULTS.SESSION_TIMEOUT, 3 * (heartbeat or 0.0))
        if heartbeat is None:
            usual = _DEFAULTS.HEARTBEAT_TIMEOUT
            heartbeat = usual if usual < session / 2 else session / 3
        self._set("SESSION_TIMEOUT", session, base.key("session.timeout.ms"))
        self._set("HEARTBEAT_TIMEOUT", heartbeat, limits.key("heartbeatTimeout"))
        self._pace_heartbeats(heartbeat)
        if poll := self._taken(base, "max.poll.interval.ms"):
            self._set("MAX_POLL_INTERVAL", poll, base.key("max.poll.interval.ms"))
        for section in (self._producer, base):
            for name in _DELIVERY_KAFKA:
                if "DELIVERY_TIMEOUT" not in self._values and name in section:
                    self._time_delivery(section, name, session)

    def _pace_heartbeats(self, timeout: float) -> None:
        key = self._limits.key("minPollInterval")
        interval = self._limits.duration("minPollInterval")
        if interval is None:
            key = self._base.key("heartbeat.interval.ms")
            interval = self._taken(self._base, "heartbeat.interval.ms")
        if interval is None:
            interval = min(_DEFAULTS.HEARTBEAT_INTERVAL, timeout / 4)
        elif interval > timeout / 2:
            interval = timeout / 2
            self._warn(key, f"is bounded to {interval:g} s, half the heartbeat timeout")
        self._set("HEARTBEAT_INTERVAL", interval, key)

    def _time_delivery(self, section: Section, name: str, session: float) -> None:
        wanted = self._taken(section, name)
        if not wanted or wanted > session:
            wanted = session
            self._warn(
                section.key(name), f"is bounded to {session:g} s, the session timeout"
            )
        self._set("DELIVERY_TIMEOUT", wanted, section.key(name))

    def limit(self) -> None:
        limits = self._limits
        for name, reason in LIMITS.items():
            if reason and name in limits:
                limits.text(name)
                self._warn(limits.key(name), f"means nothing here: {reason}")
        for name, setting in (
            ("maxInFlightRecords", "MAX_IN_FLIGHT"),
            ("markQueryRecords", "MARK_BATCH"),
        ):
            if (number := limits.integer(name)) is not None:
                self._set(setting, number, limits.key(name))
        if (interval := limits.duration("minMetricsInterval")) is not None:
            self._set("METER_INTERVAL", interval, limits.key("minMetricsInterval"))
        if (pause := limits.duration("markBackoff")) is not None:
            self._set("POLL_INTERVAL", pause, limits.key("markBackoff"))
            busy = min(pause, _DEFAULTS.MIN_POLL_INTERVAL)
            self._set("MIN_POLL_INTERVAL", busy, limits.key("markBackoff"))

    def configure_kafka(self) -> None:
        taken = _ELECTION_KAFKA.union(_DELIVERY_KAFKA)
        self._values["KAFKA"] = self._kept(self._base, taken)
        taken = frozenset(_DELIVERY_KAFKA)
        self._values["PRODUCER_KAFKA"] = self._kept(self._producer, taken)

    def _kept(self, section: Section, taken: frozenset[str]) -> dict[str, str | None]:
        """Return what goes to librdkafka as it is."""
        kept = {}
        for name in section:
            value = section.text(name)
            if name in _ELECTION_KAFKA - taken:
                self._warn(section.key(name), "is ignored: no property of a producer")
            elif name in OWNED_KAFKA_KEYS and name not in taken:
                self._warn(section.key(name), f"is ignored: {OWNED_KAFKA_KEYS[name]}")
            elif name.startswith("go."):
                self._warn(section.key(name), "is ignored: of the Go client only")
            elif name not in taken:
                kept[name] = value
        return kept

    def _taken(self, section: Section, name: str) -> float | None:
        """Return a Kafka property in seconds, and say that it is a setting here."""
        if (milliseconds := section.integer(name)) is None:
            return None
        message = "is taken over as a setting of django-outbox"
        self.notices.append(Notice(logging.INFO, section.key(name), message))
        return milliseconds / 1000

    def _set(self, setting: str, value: Any, key: str) -> None:
        self._values[setting] = value
        self._keys[setting] = key

    def _warn(self, key: str, message: str) -> None:
        self.notices.append(Notice(logging.WARNING, key, message))


def _data_source(harvest: Section, notices: list[Notice]) -> str:
    key = harvest.key("dataSource")
    source = harvest.text("dataSource") or DATA_SOURCE
    if "://" not in source:
        # To libpq `password= dbname=x` is the password "dbname=x".
        source = _EMPTY_VALUE.sub(lambda m: m[1] or f"{m[2]}='' ", source)
    try:
        Database({"conninfo": source})
    except ConfigurationError:
        raise ConfigurationError(
            f"{key}: libpq accepts neither these keywords nor this URL. Parameters of "
            "the server's go into options: options='-c search_path=sales'."
        ) from None
    if "sslmode" not in source and not os.environ.get("PGSSLMODE"):
        message = "has no sslmode: libpq falls back to clear text, goharvest did not"
        notices.append(Notice(logging.WARNING, key, message))
    return source


def _table(harvest: Section) -> str:
    """Return the name that SQL makes of it: what is not quoted is lower case."""
    text = harvest.text("outboxTable") or "outbox"
    parts = _IDENTIFIER.findall(text)
    written = ".".join(plain or f'"{quoted}"' for plain, quoted in parts)
    names = [plain.lower() or quoted for plain, quoted in parts]
    if written != text or len(names) > 2 or any(len(n.encode()) > 63 for n in names):
        raise ConfigurationError(
            f"{harvest.key('outboxTable')}: {text!r} must be a table's name, perhaps "
            "with its schema."
        )
    return ".".join(names)


def _level(section: Section) -> int:
    text = section.text("level") or "info"
    if text.lower() not in LEVELS:
        raise ConfigurationError(
            f"{section.key('level')}: {text!r} must be Trace, Debug, Info, Warn, Error "
            "or Off."
        )
    return LEVELS[text.lower()]
