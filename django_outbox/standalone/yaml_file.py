"""
Reads a reaper.yaml: YAML in, sections with typed access to their keys out.

Every scalar stays the text of the file, so that a password like `0123` or a level
like `Off` keeps its meaning. No message quotes a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import yaml

from ..exceptions import ConfigurationError
from ..settings.field_types import suggestion

_RESOLVED: Final = frozenset({"tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"})
_RESOLVERS: Final = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _RESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
"""The only meanings of an unquoted scalar besides text: null, and a merge key."""

_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    # Unicode has two such characters, and Go accepts both.
    "\N{MICRO SIGN}s": Decimal("1e-6"),
    "\N{GREEK SMALL LETTER MU}s": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
"""Seconds in each unit of a Go duration."""

_PART: Final = re.compile(rf"(\d+\.?\d*|\.\d+)({'|'.join(_UNITS)})", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_INTEGER: Final = re.compile(r"\d{1,18}", re.ASCII)

_IDENTIFIER: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_$]*)|"([^".\0]+)"')

_EMPTY_VALUE: Final = re.compile(r"('(?:\\.|[^'\\])*')|(?<!\S)(\w+)\s*=\s+(?=\w+\s*=)")
"""A quoted value, or a keyword without a value before the next keyword."""


class _Loader(yaml.SafeLoader):
    """Leaves scalars as text and refuses duplicate keys."""

    yaml_implicit_resolvers = _RESOLVERS

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if (text := str(key.value)) in seen:
                raise _StandsTwice(problem_mark=key.start_mark)
            seen.add(text)
        return node


class _StandsTwice(yaml.MarkedYAMLError):
    """A mapping has a duplicate key."""


def read(path: Path) -> Mapping[str, Any]:
    """
    Return the file's mapping; an empty file has an empty one.

    Raises:
        ConfigurationError: with one line, without the file's text.
    """
    try:
        document = yaml.load(path.read_text("utf-8"), _Loader)  # noqa: S506
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigurationError("is not UTF-8 text.") from None
    except yaml.MarkedYAMLError as error:
        # The parser's message may quote a part of a password.
        is_twice = isinstance(error, _StandsTwice)
        what = "has a duplicate key" if is_twice else "is not valid YAML"
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{what}{place}.") from None
    except yaml.YAMLError:
        raise ConfigurationError("is not valid YAML.") from None
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigurationError("must be a mapping of keys to values.")
    return document


def seconds(text: str) -> float:
    """
    Convert Go's notation: `1m30s`, `500ms`, or plain nanoseconds.

    Raises:
        ValueError: the text is not a duration.
    """
    if _INTEGER.fullmatch(text):
        return float(Decimal(text) * _UNITS["ns"])
    if not _DURATION.fullmatch(text) or len(text) > 100:
        raise ValueError(f"{text!r} is not a duration such as 500ms, 1s or 1m30s.")
    return float(sum(Decimal(n) * _UNITS[unit] for n, unit in _PART.findall(text)))


def conninfo(text: str) -> str:
    """
    Return a data source in libpq's syntax.

    `password= dbname=x` means an empty password; libpq (and goharvest) would read
    the password "dbname=x".
    """
    if "://" in text:
        return text
    return _EMPTY_VALUE.sub(lambda found: found[1] or f"{found[2]}='' ", text)


def table_name(text: str) -> str:
    """
    Return a table's name as SQL reads it: unquoted parts become lower case.

    Raises:
        ValueError: the text is not a name with or without a schema.
    """
    parts = _IDENTIFIER.findall(text)
    written = ".".join(plain or f'"{quoted}"' for plain, quoted in parts)
    names = [plain.lower() or quoted for plain, quoted in parts]
    if (
        written != text
        or len(names) not in (1, 2)
        or any(len(n.encode()) > 63 for n in names)
    ):
        raise ValueError(f"{text!r} is not a table name (with or without a schema).")
    return ".".join(names)


class Section:
    """
    One mapping of the file, whose keys are all known.

    Args:
        values: the mapping; None when it is empty.
        path: its place in the file: `harvest.limits`.
        known: the allowed keys; None allows any.

    Raises:
        ConfigurationError: a key is unknown.
    """

    def __init__(
        self, values: Any, *, path: str = "", known: Collection[str] | None = None
    ) -> None:
        self.path = path
        if values in (None, ""):
            values = {}
        if not isinstance(values, Mapping):
            raise ConfigurationError(f"{path}: must be a mapping of keys to values.")
        self._values = values
        for name in values:
            if known is not None and name not in known:
                raise ConfigurationError(self._unknown(str(name), known))

    def __contains__(self, name: str) -> bool:
        return self._value(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._values if name in self)

    def key(self, name: str) -> str:
        """Return a key with its path, for messages."""
        return f"{self.path}.{name}" if self.path else name

    def section(self, name: str, *, known: Collection[str] | None = None) -> Section:
        return Section(self._value(name), path=self.key(name), known=known)

    def text(self, name: str) -> str | None:
        """Return a scalar as text of the file; empty counts as missing."""
        value = self._value(name)
        if value is None or isinstance(value, str):
            return value
        raise ConfigurationError(f"{self.key(name)}: must be a plain value.")

    def duration(self, name: str) -> float | None:
        """Return a Go duration in seconds."""
        if (text := self.text(name)) is None:
            return None
        try:
            return seconds(text)
        except ValueError as error:
            raise ConfigurationError(f"{self.key(name)}: {error}") from None

    def integer(self, name: str) -> int | None:
        """Return a whole number."""
        if (text := self.text(name)) is None:
            return None
        if not _INTEGER.fullmatch(text):
            raise ConfigurationError(f"{self.key(name)}: {text!r} is not a number.")
        return int(text)

    def _value(self, name: str) -> Any:
        value = self._values.get(name)
        return None if value == "" else value

    def _unknown(self, name: str, known: Collection[str]) -> str:
        return f"{self.key(name)}: unknown key.{suggestion(name, known)}"
