"""
How a topic's values are encoded, as the settings say it.

`config.py` hands over each table of `schemas`; all else gets the `Encoded`
that is made of it here. Nothing of the extra `registry` is needed for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ...exceptions import ConfigurationError
from .registry import Registry

OPTIONS: Final = {
    "avro": ("format", "file", "schema", "confluent"),
    "protobuf": ("format", "file", "message", "confluent"),
}
"""The formats, and what can be said of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The schema of a topic whose values are not JSON."""

    format: str
    """`avro` or `protobuf`."""
    schema: bytes
    """The text of an Avro schema, or a serialized set of Protobuf's files."""
    message: str = ""
    """Protobuf's full name of the message."""
    is_framed: bool = False
    """Whether each value begins with the id of its schema, as Confluent has it."""
    registry: Registry | None = None
    """Who knows the schemas by their ids; None: all are written by this one."""


def read_schemas(
    tables: Mapping[str, Any], registry: Registry | None
) -> dict[str, str | Encoded]:
    """
    Turn what the settings say of each topic into its schema.

    Raises:
        ConfigurationError: names the topic and the option.
    """
    return {
        topic: table
        if isinstance(table, (str, Encoded))
        else _read(table, topic=topic, registry=registry)
        for topic, table in tables.items()
    }


def find_registry(url: str, auth: str) -> Registry | None:
    """
    Where the registry is, if the settings name one.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        # Not the text: it may have a password in it.
        raise ConfigurationError("registry: this is no http:// or https:// URL.")
    if "@" in parts.netloc:
        raise ConfigurationError(
            "registry: keep user and password out of it and in registry_auth"
            " (OUTBOX_PIPELINE_REGISTRY_AUTH)."
        )
    if auth and ":" not in auth:
        raise ConfigurationError("registry_auth: write user:password.")
    return Registry(url=url.rstrip("/"), auth=auth)


def _read(table: Any, *, topic: str, registry: Registry | None) -> Encoded:
    where = f"schemas: {topic}"
    if not isinstance(table, Mapping):
        raise ConfigurationError(
            f"{where}: {table!r} is neither columns nor a table with a format."
        )
    form = table.get("format")
    if form not in OPTIONS:
        formats = " or ".join(map(repr, OPTIONS))
        raise ConfigurationError(f"{where}: format must be {formats}, not {form!r}.")
    for option in table:
        if option not in OPTIONS[form]:
            known = ", ".join(OPTIONS[form])
            raise ConfigurationError(
                f"{where}: {form} has no option {option!r}; it has {known}."
            )
    is_framed = table.get("confluent", False)
    if not isinstance(is_framed, bool):
        raise ConfigurationError(f"{where}: confluent must be true or false.")
    message = table.get("message", "")
    if form == "protobuf" and not (message and isinstance(message, str)):
        raise ConfigurationError(f"{where}: message must name one, with its package.")
    return Encoded(
        format=form,
        schema=_schema(table, where),
        message=message,
        is_framed=is_framed,
        registry=registry if is_framed else None,
    )


def _schema(table: Mapping[str, Any], where: str) -> bytes:
    if ("file" in table) == ("schema" in table):
        choice = "file, or schema with its text" if "schema" in table else "file"
        raise ConfigurationError(f"{where}: give the schema's {choice}, and only one.")
    if "schema" in table:
        text = table["schema"]
        return (text if isinstance(text, str) else json.dumps(text)).encode()
    try:
        return Path(table["file"]).read_bytes()
    except (OSError, TypeError) as error:
        raise ConfigurationError(f"{where}: file: {error}") from error
