"""
Reads PromQL as far as a test of dashboards and alerts needs it.

It finds the metrics and the labels of an expression, and refuses what it does not
know: a function, an aggregation without parentheses, a bracket that does not close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<duration>\d+(?:ms|[smhdwy]))
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<sign>=~|!~|==|!=|>=|<=|[-+*/%^<>=(){}\[\],:])
    )""",
    re.VERBOSE,
)

AGGREGATIONS: Final = {"sum", "max", "min", "avg", "count", "topk", "quantile"}
FUNCTIONS: Final = {
    *("absent", "clamp_min", "histogram_quantile", "increase", "rate"),
    *("max_over_time", "min_over_time", "avg_over_time", "changes", "time"),
}
OVER_RANGES: Final = {
    *("increase", "rate", "changes"),
    *("max_over_time", "min_over_time", "avg_over_time"),
}
GROUPING: Final = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS: Final = {"and", "or", "unless", "bool", "offset"}
CLOSING: Final = {"(": ")", "{": "}", "[": "]"}


class Expression(NamedTuple):
    """What an expression names."""

    metrics: frozenset[str]
    labels: frozenset[str]


class Token(NamedTuple):
    kind: str
    text: str


def tokens(expression: str) -> list[Token]:
    """Split an expression; raise `ValueError` for a character that is no token."""
    found, at, text = [], 0, expression.strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"not PromQL: {text[at : at + 20]!r}")
        found.append(Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def parse(expression: str) -> Expression:
    """Return the metrics and labels; raise `ValueError` if it cannot be PromQL."""
    found = tokens(expression)
    if not found:
        raise ValueError("an empty expression")
    _check_brackets(found)
    metrics: set[str] = set()
    labels: set[str] = set()
    for kind, name in _names(found):
        (labels if kind == "label" else metrics).add(name)
    return Expression(frozenset(metrics), frozenset(labels))


def _check_brackets(found: list[Token]) -> None:
    awaited: list[str] = []
    for token in found:
        if token.kind != "sign":
            continue
        if token.text in CLOSING:
            awaited.append(CLOSING[token.text])
        elif token.text in CLOSING.values() and (
            not awaited or awaited.pop() != token.text
        ):
            raise ValueError(f"{token.text} closes nothing")
    if awaited:
        raise ValueError(f"{awaited[-1]} is missing")


def _names(found: list[Token]) -> Iterator[tuple[str, str]]:
    """Yield each name of a label or a metric, and which of them it is."""
    for place, token, after in zip(
        _places(found), found, [*found[1:], Token("sign", "")], strict=True
    ):
        if token.text == "[" and (after.kind != "duration" or not place.takes_range):
            raise ValueError("a range outside of a function that takes one")
        if token.kind == "name" and token.text not in GROUPING:
            if place.has_labels:
                yield "label", token.text
            elif _is_metric(token.text, after.text, place):
                yield "metric", token.text


class Place(NamedTuple):
    """Where a token is."""

    has_labels: bool
    """In the braces of a metric, or in the parentheses of a grouping."""
    takes_range: bool
    """In the parentheses of a function that takes a range."""


def _places(found: list[Token]) -> Iterator[Place]:
    in_braces = False
    functions: list[str] = []
    for before, token in zip([Token("sign", ""), *found], found, strict=False):
        if token.text == "(":
            functions.append(before.text)
        elif token.text == ")":
            functions.pop()
        elif token.text in {"{", "}"}:
            in_braces = token.text == "{"
        has_labels = in_braces or bool(functions and functions[-1] in GROUPING)
        yield Place(has_labels, bool(OVER_RANGES & set(functions)))


def _is_metric(name: str, after: str, place: Place) -> bool:
    """Whether it is; raise `ValueError` where it can be nothing."""
    if name in AGGREGATIONS:
        if after not in {"(", "by", "without"}:
            raise ValueError(f"{name} aggregates nothing")
        return False
    if name in OPERATORS:
        return False
    if after == "(":
        if name not in FUNCTIONS:
            raise ValueError(f"{name} is not a known function")
        return False
    if name.endswith(("_total", "_bucket")) and not place.takes_range:
        raise ValueError(f"{name} is a counter: take its rate")
    return True
