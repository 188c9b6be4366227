"""
The settings in force, and where each value comes from.

A value comes from the project (`settings`), is the `default`, or was `derived` from
other settings, the routers, or the identity of the outbox in its database. Secrets are
hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from typing import Any, Final, TypedDict

from django.db import DatabaseError, connections

from ..conf import settings
from ..kafka.config import redacted
from ..models import OutboxRecord
from ..postgres.outbox_identity import named_by, read_identity
from ..settings.kafka_rules import KAFKA_SETTINGS
from ..settings.options import OutboxSettings

HIDDEN: Final = "[hidden]"
_PRIVATE: Final = re.compile(r"url|auth|password", re.IGNORECASE)
"""In the name of a pipeline setting: its value may hold credentials."""
_CREDENTIALS: Final = re.compile(r"://[^/]*@|password\W{0,2}[=:]", re.IGNORECASE)
"""In a text: it holds credentials."""


class EffectiveSetting(TypedDict):
    """One setting, ready for JSON."""

    name: str
    value: Any
    default: Any
    source: str
    """`settings`, `default` or `derived`."""


def effective_settings(alias: str) -> list[EffectiveSetting]:
    """Return every setting of the outbox in a database."""
    given = settings.raw()
    found: list[EffectiveSetting] = []
    for name, value in _values(alias).items():
        default = _plain(name, _DEFAULTS[name])
        shown = _plain(name, value)
        if name in given and given[name] == value:
            source = "settings"
        else:
            source = "default" if shown == default else "derived"
        found.append(
            EffectiveSetting(name=name, value=shown, default=default, source=source)
        )
    return found


def describe_settings(found: list[EffectiveSetting]) -> Iterator[str]:
    """Describe settings, one a line."""
    width = max(len(setting["name"]) for setting in found)
    for setting in found:
        default = setting["default"]
        note = "" if setting["value"] == default else f"  (default {default!r})"
        yield (
            f"{setting['name']:<{width}}  {setting['source']:<8}  "
            f"{setting['value']!r}{note}"
        )


_DEFAULTS: Final[Mapping[str, Any]] = {
    field.name: field.default if field.default is not MISSING else {}
    for field in fields(OutboxSettings)
}


def _values(alias: str) -> dict[str, Any]:
    """Return the value of each setting, with those that the database decides."""
    options = settings.snapshot()
    if not options.is_named:
        # Without the database the names are unknown, and all else is shown.
        with suppress(DatabaseError):
            identity = read_identity(connections[alias], OutboxRecord._meta.db_table)
            options = named_by(options, identity)
    values = {name: getattr(options, name) for name in _DEFAULTS}
    derived = {
        "DATABASE": alias,
        "SOURCE": options.SOURCE or options.LEADER_GROUP,
    }
    return values | derived


def _plain(name: str, value: Any) -> Any:
    """Return a value that JSON can hold and that shows no secret."""
    if isinstance(value, Mapping):
        if name in KAFKA_SETTINGS:
            value = redacted(value)
        return {str(key): _part(name, str(key), part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(name, part) for part in value]
    if isinstance(value, str):
        return HIDDEN if _CREDENTIALS.search(value) else value
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{type(value).__name__}>"


def _part(name: str, key: str, value: Any) -> Any:
    """Show one entry of a mapping; those of the pipeline's own mappings are hidden."""
    if name == "PIPELINE":
        if _PRIVATE.search(key):
            return HIDDEN
        if isinstance(value, Mapping):
            return dict.fromkeys(map(str, value), HIDDEN)
    return _plain(key, value)
