"""Django-like lookups on the JSON values of messages: `value__order__id__gt=3`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..stashing.writing import to_json

_MISSING: Final = object()
"""Stands for a part that a value does not have."""

_LOOKUPS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "exact": lambda found, wanted: bool(found == wanted),
    "in": lambda found, wanted: found in wanted,
    "gt": lambda found, wanted: bool(found > wanted),
    "gte": lambda found, wanted: bool(found >= wanted),
    "lt": lambda found, wanted: bool(found < wanted),
    "lte": lambda found, wanted: bool(found <= wanted),
    "contains": lambda found, wanted: wanted in found,
    "startswith": lambda found, wanted: bool(found.startswith(wanted)),
    "endswith": lambda found, wanted: bool(found.endswith(wanted)),
    "regex": lambda found, wanted: re.search(wanted, found) is not None,
    "isnull": lambda found, wanted: (found in (None, _MISSING)) is wanted,
}


def require_known(lookups: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that is not a lookup on the value."""
    for name in lookups:
        if name != "value" and not name.startswith("value__"):
            raise TypeError(
                f"{name!r} is not an argument of assert_stashed(): use topic, key, "
                "headers, times, value, or value__<name of a part>."
            )


def matches(value: Any, lookups: Mapping[str, Any]) -> bool:
    """Whether a value satisfies all lookups; bytes are read as JSON, if they are."""
    wants_bytes = any(isinstance(wanted, bytes) for wanted in lookups.values())
    if isinstance(value, bytes) and not wants_bytes:
        # Of a serializer that returns bytes.
        value = _read(value)
    return all(_matches(value, name, wanted) for name, wanted in lookups.items())


def _matches(value: Any, name: str, wanted: Any) -> bool:
    found, lookup = value, "exact"
    *path, last = name.split("__")[1:] or [""]
    for step in path:
        found = _part(found, step)
    if last and (part := _part(found, last)) is _MISSING and last in _LOOKUPS:
        # As with Django's JSONField, a name that is not a part may be a lookup.
        lookup = last
    elif last:
        found = part
    if found is _MISSING and lookup != "isnull":
        return False
    wanted = _as_json(wanted, lookup)
    try:
        # A decimal is text in JSON.
        found = Decimal(str(found)) if isinstance(wanted, Decimal) else found
        return _LOOKUPS[lookup](found, wanted)
    except (TypeError, AttributeError, InvalidOperation):
        # The lookup is for values of another type.
        return False


def _read(value: bytes) -> Any:
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return value if found is None else found


def _part(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if isinstance(value, list) and step.isdigit() and int(step) < len(value):
        return value[int(step)]
    return _MISSING


def _as_json(wanted: Any, lookup: str) -> Any:
    """
    Return what is wanted as JSON has it, but for decimals and bytes.

    Raises:
        TypeError: JSON has nothing like it.
    """
    if isinstance(wanted, Decimal | bytes) or lookup == "regex":
        return wanted
    is_many = lookup == "in" and not isinstance(wanted, str | Mapping)
    if is_many or isinstance(wanted, set | frozenset):
        wanted = [*wanted]
    return json.loads(to_json(wanted))
