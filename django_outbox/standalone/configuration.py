"""
What a reaper.yaml configures, in goharvest's keys: database, table, name, settings.

A file of goharvest's reaper works unchanged: a key that applies becomes a setting,
a key that does not apply is accepted with a notice that says why, and an unknown
key is an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..exceptions import ConfigurationError
from ..postgres.connection import Database
from ..settings.options import OutboxSettings
from .translation import Notice, SettingsOfFile
from .yaml_file import Section, conninfo, table_name

DATA_SOURCE: Final = (
    "host=localhost port=5432 user=postgres dbname=postgres sslmode=disable"
)
"""goharvest's own default."""

_HARVEST: Final = (
    "baseKafkaConfig",
    "dataSource",
    "leaderGroupID",
    "leaderTopic",
    "limits",
    "name",
    "outboxTable",
    "producerKafkaConfig",
)
"""All keys of `harvest`, which are also allowed at the top level."""

_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaperConfig:
    """The contents of a reaper.yaml."""

    options: OutboxSettings = field(repr=False)
    data_source: str = field(repr=False)
    """A conninfo string or URL, which libpq accepts; it may hold a password."""
    table: str
    """Name of the outbox table as in the catalogue, perhaps with its schema."""
    name: str | None
    """Of the process in logs and events."""
    level: int
    """Of the log, as in `logging`."""
    notices: tuple[Notice, ...]
    in_words_of_the_file: Callable[[str], str] = field(compare=False, repr=False)
    """Replaces the settings that a message names by the file's keys."""


def configure(document: Mapping[str, Any]) -> ReaperConfig:
    """
    Turn the mapping of a reaper.yaml into settings.

    Raises:
        ConfigurationError: with one line that names the file's key.
    """
    top = Section(document, known=("harvest", "logging", *_HARVEST))
    strays = [name for name in _HARVEST if name in document]
    if "harvest" in document and strays:
        raise ConfigurationError(f"{strays[0]}: move it below 'harvest'.")
    harvest = top.section("harvest", known=_HARVEST) if "harvest" in document else top
    settings = SettingsOfFile(harvest)
    data_source = _data_source(harvest)
    if "sslmode" not in data_source and not os.environ.get("PGSSLMODE"):
        settings.warn(
            harvest.key("dataSource"),
            "has no sslmode: libpq may fall back to clear text",
        )
    return ReaperConfig(
        options=settings.build(),
        data_source=data_source,
        table=_table(harvest),
        name=harvest.text("name"),
        level=_level(top.section("logging", known=("level",))),
        notices=tuple(settings.notices),
        in_words_of_the_file=settings.in_words_of_the_file,
    )


def _data_source(harvest: Section) -> str:
    source = conninfo(harvest.text("dataSource") or DATA_SOURCE)
    try:
        Database({"conninfo": source})
    except ConfigurationError:
        raise ConfigurationError(
            f"{harvest.key('dataSource')}: libpq does not accept it. Parameters of the "
            "server go into options: options='-c search_path=sales'."
        ) from None
    return source


def _table(harvest: Section) -> str:
    text = harvest.text("outboxTable") or "outbox"
    try:
        return table_name(text)
    except ValueError as error:
        raise ConfigurationError(f"{harvest.key('outboxTable')}: {error}") from None


def _level(section: Section) -> int:
    text = section.text("level") or "info"
    if text.lower() not in _LEVELS:
        raise ConfigurationError(
            f"{section.key('level')}: {text!r} must be Trace, Debug, Info, Warn, Error "
            "or Off."
        )
    return _LEVELS[text.lower()]
