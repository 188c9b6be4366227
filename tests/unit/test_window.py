"""How many records may be under way, by what was acknowledged."""

from __future__ import annotations

import pytest

from django_outbox.relay.window import (
    DELIVERY_TIMEOUT_DIVISOR,
    MIN_WINDOW_RECORDS,
    Window,
)

SPAN = 5.0 / DELIVERY_TIMEOUT_DIVISOR / 2


@pytest.fixture
def window() -> Window:
    window = Window(5.0)
    assert window.limit == MIN_WINDOW_RECORDS
    return window


def test_it_grows_with_what_is_acknowledged(window: Window) -> None:
    for n in range(10):
        window.acknowledged(1000, 100 + n * SPAN / 10)

    assert window.limit == 20_000


def test_it_is_never_so_small_that_a_fast_broker_waits(window: Window) -> None:
    window.acknowledged(1, 100)

    assert window.limit == MIN_WINDOW_RECORDS


def test_it_keeps_what_the_last_span_had_while_a_new_one_begins(window: Window) -> None:
    window.acknowledged(10_000, 100)
    window.acknowledged(1, 100 + SPAN)

    assert window.limit == 20_000


def test_it_follows_a_broker_that_becomes_slow(window: Window) -> None:
    window.acknowledged(10_000, 100)
    window.acknowledged(3000, 100 + SPAN)
    window.acknowledged(1, 100 + 2 * SPAN)

    assert window.limit == 6000


def test_it_begins_anew_after_a_pause(window: Window) -> None:
    window.acknowledged(10_000, 100)
    window.acknowledged(1, 100 + 2 * SPAN)

    assert window.limit == MIN_WINDOW_RECORDS


def test_it_grows_where_the_way_takes_longer_than_two_spans(window: Window) -> None:
    for n in range(5):
        window.acknowledged(window.limit, 100 + n * 3 * SPAN)

    assert window.limit == 32 * MIN_WINDOW_RECORDS
