"""
Finds the part of a value that a serializer refuses.

Serializers only name the type of that part. The search calls the serializer again for
one part after the other, so that it works with any serializer; it runs only after an
error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_MAX_KEY_LENGTH: Final = 60
"""Most characters of a dict's key in a path."""
_MAX_STEPS: Final = 20
"""Most steps of a path, so that the error fits into a line."""


class Refused(NamedTuple):
    """The innermost part of a value that cannot be serialized."""

    path: str
    """As Python indexes the value: `value['items'][2]`."""
    kind: str
    """Its type, as an error names it; never the part itself."""


def find_refused(value: object, serialize: Callable[[object], object]) -> Refused:
    """Return the innermost part of a value that `serialize` refuses."""
    steps = ["value"]
    seen: set[int] = set()
    while id(value) not in seen and len(steps) < _MAX_STEPS:
        seen.add(id(value))
        for step, part in _parts(value):
            if not _is_accepted(part, serialize):
                steps.append(step)
                value = part
                break
        else:
            return _itself(value, "".join(steps), serialize)
    nested = "cyclic" if id(value) in seen else "deeply nested"
    return Refused("".join(steps), f"{nested} {_kind(value)}")


def _itself(value: object, path: str, serialize: Callable[[object], object]) -> Refused:
    """Return the key that is refused, else the value: all its parts are accepted."""
    for key, part in value.items() if isinstance(value, dict) else ():
        if not _is_accepted({key: part}, serialize):
            return Refused(f"a key of {path}", _kind(key))
    return Refused(path, _kind(value))


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield each part of a value with the step that leads to it."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{_shown(key)}]", part
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            yield f"[{position}]", part


def _is_accepted(part: object, serialize: Callable[[object], object]) -> bool:
    try:
        serialize(part)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _kind(part: object) -> str:
    if isinstance(part, float) and not math.isfinite(part):
        return "float that is NaN or infinite"
    return type(part).__name__


def _shown(key: object) -> str:
    text = repr(key)
    return text if len(text) <= _MAX_KEY_LENGTH else f"{text[:_MAX_KEY_LENGTH]}…"
