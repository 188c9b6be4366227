"""
The encoding of a topic's values, as declared in the settings.

Each table of `schemas` becomes an `Encoded`. This does not need the packages
of the extra `registry`.
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
"""The formats and their options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The schema of a topic whose values are not JSON."""

    format: str
    """`avro` or `protobuf`."""
    schema: bytes
    """The text of an Avro schema, or a serialized Protobuf FileDescriptorSet."""
    message: str = ""
    """Full name of the Protobuf message."""
    is_framed: bool = False
    """Whether values have Confluent's wire format: a schema id comes first."""
    registry: Registry | None = None
    """The registry of the schema ids; None: `schema` wrote all values."""


def read_schemas(
    tables: Mapping[str, Any], registry: Registry | None
) -> dict[str, str | Encoded]:
    """
    Parse the setting `schemas`.

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
    Return the registry, if one is configured.

    Raises:
        ConfigurationError: the URL or the credentials are malformed.
    """
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        # Not the value: it may contain a password.
        raise ConfigurationError("registry: must be an http:// or https:// URL.")
    if "@" in parts.netloc:
        raise ConfigurationError(
            "registry: move user and password to registry_auth"
            " (OUTBOX_PIPELINE_REGISTRY_AUTH)."
        )
    if auth and ":" not in auth:
        raise ConfigurationError("registry_auth: must be user:password.")
    return Registry(url=url.rstrip("/"), auth=auth)


def _read(table: Any, *, topic: str, registry: Registry | None) -> Encoded:
    where = f"schemas: {topic}"
    if not isinstance(table, Mapping):
        raise ConfigurationError(
            f"{where}: {table!r} must be a string with columns or a table with a"
            " format."
        )
    form = table.get("format")
    if form not in OPTIONS:
        formats = " or ".join(map(repr, OPTIONS))
        raise ConfigurationError(f"{where}: format must be {formats}, not {form!r}.")
    for option in table:
        if option not in OPTIONS[form]:
            known = ", ".join(OPTIONS[form])
            raise ConfigurationError(
                f"{where}: {form} has no option {option!r}, only {known}."
            )
    is_framed = table.get("confluent", False)
    if not isinstance(is_framed, bool):
        raise ConfigurationError(f"{where}: confluent must be true or false.")
    message = table.get("message", "")
    if form == "protobuf" and not (message and isinstance(message, str)):
        raise ConfigurationError(
            f"{where}: message must be the full name of a message, with its package."
        )
    return Encoded(
        format=form,
        schema=_schema(table, where),
        message=message,
        is_framed=is_framed,
        registry=registry if is_framed else None,
    )


def _schema(table: Mapping[str, Any], where: str) -> bytes:
    if ("file" in table) == ("schema" in table):
        has_schema = "schema" in OPTIONS[table["format"]]
        choice = "either file or schema" if has_schema else "file"
        raise ConfigurationError(f"{where}: set {choice}.")
    if "schema" in table:
        text = table["schema"]
        return (text if isinstance(text, str) else json.dumps(text)).encode()
    try:
        return Path(table["file"]).read_bytes()
    except (OSError, TypeError) as error:
        raise ConfigurationError(f"{where}: file: {error}") from error
