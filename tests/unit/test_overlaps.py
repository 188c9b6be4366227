"""The fault matrix finds two leaders at once, and only those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from ..acceptance.chaos.scene import Term, overlaps


def term(begin: int, end: int, name: str) -> Term:
    return begin, end, f"{name}-{begin}", name


@pytest.mark.parametrize(
    ("terms", "still", "pairs"),
    [
        pytest.param([(1, 5, "a"), (5, 9, "b")], {}, 0, id="one after the other"),
        pytest.param([(1, 5, "a"), (4, 9, "b")], {}, 1, id="two at once"),
        pytest.param([(1, 9, "a"), (2, 3, "b"), (4, 5, "c")], {}, 2, id="within"),
        pytest.param(
            [(1, 9, "a"), (5, 8, "b")], {"a": [4]}, 0, id="stood still before"
        ),
        pytest.param([(1, 9, "a"), (5, 8, "b")], {"a": [6]}, 1, id="stood later"),
        pytest.param([(3, 9, "a"), (5, 8, "b")], {"a": [2]}, 1, id="led again"),
        pytest.param(
            [(1, 5, "a"), (3, 7, "b"), (6, 9, "a")], {"a": [2, 8]}, 1, id="stood twice"
        ),
        pytest.param([(1, 9, "a"), (5, 8, "b")], {"b": [2]}, 1, id="the other one"),
    ],
)
def test_two_leaders_at_once_are_found(
    terms: list[tuple[int, int, str]], still: Mapping[str, Sequence[int]], pairs: int
) -> None:
    assert len(overlaps([term(*one) for one in terms], still)) == pairs
