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
    """Whether a decoded value satisfies all lookups."""
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
    try:
        return _LOOKUPS[lookup](*_comparable(found, wanted, lookup))
    except (TypeError, AttributeError, InvalidOperation):
        # The lookup is for values of another type.
        return False


def _part(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _MISSING)
    if isinstance(value, list) and step.isdigit() and int(step) < len(value):
        return value[int(step)]
    return _MISSING


def _comparable(found: Any, wanted: Any, lookup: str) -> tuple[Any, Any]:
    """Return both as JSON has them; a decimal, which is text there, as a number."""
    if isinstance(wanted, Decimal):
        return Decimal(str(found)), wanted
    if isinstance(wanted, bytes) or lookup == "regex":
        return found, wanted
    if isinstance(wanted, set | frozenset):
        wanted = [*wanted]
    return found, json.loads(to_json(wanted))
