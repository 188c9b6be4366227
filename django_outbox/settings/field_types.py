"""
Types and names of settings fields, as annotations of a dataclass spell them.

One place for all settings classes: which values a field accepts, and what to
suggest for a name that no field has.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

_ACCEPTED: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "bool": (bool,),
    # TOML and YAML have lists.
    "tuple": (tuple, list),
    "Mapping": (Mapping,),
}
"""By annotation, without what is in brackets."""


def has_type(value: Any, annotation: str) -> bool:
    """
    Whether a field with this annotation accepts the value; items are not checked.

    A bool is not an int here: `SHARDS = True` is a mistake.
    """
    accepted = _ACCEPTED[annotation.partition("[")[0]]
    return isinstance(value, accepted) and (
        isinstance(value, bool) == (accepted == (bool,))
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `Did you mean …?` after a space, or nothing when no name is similar."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
