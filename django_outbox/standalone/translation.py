"""
Translates goharvest's limits and Kafka properties into settings of an outbox.

The settings keep all rules of `OutboxSettings`, for any keys of the file. A key
with another meaning, or with none, becomes a notice.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final, NamedTuple

from ..exceptions import ConfigurationError
from ..settings.kafka_rules import servers_of
from ..settings.options import OutboxSettings
from ..settings.reserved_properties import RESERVED_PROPERTIES
from ..settings.rules import problems
from .yaml_file import Section

_DEFAULTS: Final = OutboxSettings()

_UNUSED: Final = {
    "drainInterval": "a busy key's records wait in a queue of their own",
    "ioErrorBackoff": "the pause after a database error grows from 0.1 s to 1 s",
    "maxPollInterval": "leadership is checked before each record is sent",
    "pollDuration": "the election waits for the broker instead of polling in turns",
    "queueTimeout": "a busy key's records wait in a queue of their own",
    "sendBuffer": "there is one producer, with librdkafka's queue",
    "sendConcurrency": "one producer sends for all keys at the same time",
}
"""Limits without effect, each with the reason."""

_COUNTS: Final = {
    "markQueryRecords": "MARK_BATCH",
    "maxInFlightRecords": "MAX_IN_FLIGHT",
}
"""Limits that are a number of records, and the setting of each."""

LIMITS: Final = (
    *_COUNTS,
    *_UNUSED,
    "heartbeatTimeout",
    "markBackoff",
    "minMetricsInterval",
    "minPollInterval",
)
"""All keys of `limits`."""

_ELECTION: Final = {
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "session.timeout.ms",
}
"""Properties of the group's consumer that have a setting."""

_DELIVERY: Final = ("delivery.timeout.ms", "message.timeout.ms")
"""librdkafka's two names of one property that has a setting."""

SERVERS: Final = {"bootstrap.servers": "localhost:9092"}
"""The brokers, unless the file names others."""

_SETTING_NAME: Final = re.compile(r"\b[A-Z]{3,}(?:_[A-Z]+)*\b")


class Notice(NamedTuple):
    """A remark on a key for the author of the file."""

    level: int
    """As in `logging`."""
    key: str
    message: str


class SettingsOfFile:
    """Builds the settings, and remembers the key that each comes from."""

    def __init__(self, harvest: Section) -> None:
        self.notices: list[Notice] = []
        """Remarks for the author of the file."""
        self._harvest = harvest
        self._limits = harvest.section("limits", known=LIMITS)
        self._base = harvest.section("baseKafkaConfig")
        self._producer = harvest.section("producerKafkaConfig")
        self._values: dict[str, Any] = {}
        self._keys = {
            "KAFKA": self._base.path,
            "PRODUCER_KAFKA": self._producer.path,
            "SESSION_TIMEOUT": self._base.key("session.timeout.ms"),
            "MAX_POLL_INTERVAL": self._base.key("max.poll.interval.ms"),
            "DELIVERY_TIMEOUT": self._producer.key("delivery.timeout.ms"),
        }

    def build(self) -> OutboxSettings:
        """
        Return the checked settings.

        Raises:
            ConfigurationError: with one line that names the file's key.
        """
        self._name_election()
        self._time_election()
        self._limit()
        kafka = self._kept(self._base, *_ELECTION, *_DELIVERY)
        self._values["KAFKA"] = kafka if servers_of(kafka) else {**SERVERS, **kafka}
        self._values["PRODUCER_KAFKA"] = self._kept(self._producer, *_DELIVERY)
        for problem in problems(self._values):
            message = f"{problem.setting}: {problem.message}"
            raise ConfigurationError(self.in_words_of_the_file(message))
        return OutboxSettings(**self._values)

    def warn(self, key: str, message: str) -> None:
        self.notices.append(Notice(logging.WARNING, key, message))

    def in_words_of_the_file(self, message: str) -> str:
        """Replace the settings that a message names by the file's keys."""
        return _SETTING_NAME.sub(lambda m: self._keys.get(m[0], m[0]), message)

    def _name_election(self) -> None:
        topic_key = self._harvest.key("leaderTopic")
        group_key = self._harvest.key("leaderGroupID")
        topic = self._harvest.text("leaderTopic") or ""
        group = self._harvest.text("leaderGroupID") or ""
        self._keys |= {"LEADER_TOPIC": topic_key, "LEADER_GROUP": group_key}
        named = OutboxSettings(LEADER_TOPIC=topic, LEADER_GROUP=group)
        if not group and named.is_named:
            group = named.LEADER_GROUP
            self.warn(
                group_key,
                f"is not set, using {group!r}; set another one for each outbox table",
            )
        if not topic and named.is_named:
            topic = named.LEADER_TOPIC
            self.warn(topic_key, f"is not set, using {topic!r}")
        if topic.startswith("__"):
            raise ConfigurationError(
                f"{topic_key}: {topic!r} is an internal topic of Kafka; name a topic "
                "to which heartbeats can be written."
            )
        if named.is_named:
            self._set("LEADER_TOPIC", topic_key, topic)
            self._set("LEADER_GROUP", group_key, group)

    def _time_election(self) -> None:
        """Keep the rules that prevent two leaders, for any keys of the file."""
        heartbeat = self._limits.duration("heartbeatTimeout")
        session = self._taken(self._base, "session.timeout.ms", "SESSION_TIMEOUT")
        if session is None:
            # Three times as in goharvest, and never below a broker's default minimum.
            session = max(_DEFAULTS.SESSION_TIMEOUT, 3 * (heartbeat or 0.0))
            self._values["SESSION_TIMEOUT"] = session
        if heartbeat is None:
            usual = _DEFAULTS.HEARTBEAT_TIMEOUT
            heartbeat = usual if usual < session / 2 else session / 3
        self._set("HEARTBEAT_TIMEOUT", self._limits.key("heartbeatTimeout"), heartbeat)
        self._pace_heartbeats(heartbeat)
        self._taken(self._base, "max.poll.interval.ms", "MAX_POLL_INTERVAL")
        for section in (self._base, self._producer):
            for name in _DELIVERY:
                wanted = self._taken(section, name, "DELIVERY_TIMEOUT")
                if wanted is not None and not 0 < wanted <= session:
                    key = section.key(name)
                    self.warn(key, f"is reduced to the session timeout, {session:g} s")
                    self._set("DELIVERY_TIMEOUT", key, session)

    def _pace_heartbeats(self, timeout: float) -> None:
        name = "heartbeat.interval.ms"
        key = self._base.key(name)
        interval = self._taken(self._base, name, "HEARTBEAT_INTERVAL")
        if "minPollInterval" in self._limits or interval is None:
            key = self._limits.key("minPollInterval")
            interval = self._limits.duration("minPollInterval")
        if interval is None:
            self._keys["HEARTBEAT_INTERVAL"] = key
            return
        if interval > timeout / 2:
            interval = timeout / 2
            self.warn(key, f"is reduced to half the heartbeat timeout, {interval:g} s")
        self._set("HEARTBEAT_INTERVAL", key, interval)

    def _limit(self) -> None:
        limits = self._limits
        for name, reason in _UNUSED.items():
            if limits.text(name) is not None:
                self.warn(limits.key(name), f"has no effect: {reason}")
        for name, setting in _COUNTS.items():
            if (count := limits.integer(name)) is not None:
                self._set(setting, limits.key(name), count)
        if (interval := limits.duration("minMetricsInterval")) is not None:
            self._set("METER_INTERVAL", limits.key("minMetricsInterval"), interval)
        if (pause := limits.duration("markBackoff")) is not None:
            self._set("POLL_INTERVAL", limits.key("markBackoff"), pause)
            busy = min(pause, _DEFAULTS.MIN_POLL_INTERVAL)
            self._set("MIN_POLL_INTERVAL", limits.key("markBackoff"), busy)

    def _kept(self, section: Section, *taken: str) -> dict[str, str | None]:
        """Return the properties that go to librdkafka unchanged."""
        kept = {}
        for name in section:
            value = section.text(name)
            if reason := RESERVED_PROPERTIES.get(name) if name not in taken else None:
                reason = self.in_words_of_the_file(reason)
                self.warn(section.key(name), f"is ignored: {reason}")
            elif name.startswith("go."):
                self.warn(section.key(name), "is ignored: for the Go client only")
            elif name not in taken:
                kept[name] = value
        return kept

    def _taken(self, section: Section, name: str, setting: str) -> float | None:
        """Use a Kafka property as a setting, in seconds."""
        if (milliseconds := section.integer(name)) is None:
            return None
        key = section.key(name)
        self.notices.append(Notice(logging.INFO, key, f"is used as {setting}"))
        self._set(setting, key, milliseconds / 1000)
        return milliseconds / 1000

    def _set(self, setting: str, key: str, value: Any) -> None:
        self._values[setting] = value
        self._keys[setting] = key
