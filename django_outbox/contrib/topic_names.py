"""The name of a topic, with variables: `{tenant}.orders`."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from typing import Final

from ..exceptions import ConfigurationError, InvalidMessage
from ..settings.rules import TOPIC_NAME

_TAKEN: Final = {"key", "value", "headers", "partition", "using", "ordered"}
"""Arguments of `stash()`, which no variable may be called."""


class TopicName:
    """
    The name of one topic, or the pattern of many.

    Raises:
        ConfigurationError: no topic can have this name.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.variables = frozenset(_variables(pattern))
        sample = pattern.format(**dict.fromkeys(self.variables, "x"))
        if not TOPIC_NAME.match(sample):
            raise ConfigurationError(f"{pattern!r} is not a valid topic name.")

    def __str__(self) -> str:
        return self._pattern

    def filled(self, variables: Mapping[str, str]) -> str:
        """
        Return the topic's name.

        Raises:
            InvalidMessage: a variable is missing, unknown, empty or not text.
        """
        if variables.keys() != self.variables:
            wanted = ", ".join(sorted(self.variables)) or "no variables"
            raise InvalidMessage(f"topic: {self} needs {wanted}.")
        for name, value in variables.items():
            # Of None the topic would be None.orders.
            if not (isinstance(value, str) and value):
                kind = "empty" if value == "" else type(value).__name__
                raise InvalidMessage(
                    f"topic: {name} of {self} must be a str with at least one "
                    f"character, not {kind}."
                )
        return self._pattern.format(**variables)


def _variables(pattern: str) -> Iterable[str]:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(pattern)]
    except ValueError as exc:
        raise ConfigurationError(
            f"{pattern!r} is not a valid topic name: {exc}."
        ) from exc
    for field in fields:
        if field is None:
            continue
        if not field.isidentifier() or field in _TAKEN:
            raise ConfigurationError(
                f"{pattern!r}: {field!r} cannot be the name of a variable."
            )
        yield field
