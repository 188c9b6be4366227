"""The audit itself: it finds what it is there to find."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from .auditing import Delivery, audit
from .lag import Lags
from .murmur2 import murmur2
from .writing import Ledger, Promise


def delivery(number: int, **changes: object) -> Delivery:
    headers: list[tuple[str, str | None]] = [
        *(("kind", "test"), ("trace", "k")),
        *(("outbox-message-id", f"m{number}"), ("outbox-id", str(number))),
    ]
    plain = Delivery(
        id=number,
        message_id=f"m{number}",
        topic="t",
        partition=0,
        offset=0,
        key="k",
        value=f"v{number}".encode(),
        headers=headers,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


audit_one = partial(audit, partitions=1)


@pytest.fixture
def ledger() -> Ledger:
    """Three records of one key were committed."""
    promises = [Promise(n, f"m{n}", "k", f"v{n}") for n in (1, 2, 3)]
    return Ledger(committed={p.message_id: p for p in promises})


def test_a_log_that_holds_each_record_once_in_order_is_right(ledger: Ledger) -> None:
    found = audit_one(ledger, [delivery(1), delivery(2), delivery(3)])
    assert (found.broken, found.duplicates) == ({}, 0)


def test_the_last_record_of_a_key_may_come_twice(ledger: Ledger) -> None:
    found = audit_one(ledger, map(delivery, (1, 2, 2, 3, 3)))
    assert (found.broken, found.duplicates) == ({}, 2)


def test_missing_and_unknown_records_are_found(ledger: Ledger) -> None:
    found = audit_one(ledger, map(delivery, (1, 4, 3)))
    assert found.broken == {"lost": [2], "phantoms": [4]}


def test_a_record_behind_a_later_one_is_found(ledger: Ledger) -> None:
    found = audit_one(ledger, map(delivery, (1, 3, 2)))
    assert found.broken == {"out_of_order": [2]}


def test_repeats_in_their_order_may_follow_a_later_record(ledger: Ledger) -> None:
    found = audit_one(ledger, map(delivery, (1, 2, 3, 2, 3)))
    assert (found.broken, found.duplicates) == ({}, 2)


def test_repeats_that_leave_one_out_are_found(ledger: Ledger) -> None:
    found = audit_one(ledger, map(delivery, (1, 2, 3, 1, 3)))
    assert (found.broken, found.duplicates) == ({"regressed": [3]}, 2)


def test_with_one_in_flight_only_the_last_record_may_be_repeated(
    ledger: Ledger,
) -> None:
    found = audit_one(ledger, map(delivery, (1, 2, 3, 3)), is_pipelined=False)
    assert (found.broken, found.duplicates) == ({}, 1)
    found = audit_one(ledger, map(delivery, (1, 2, 3, 2)), is_pipelined=False)
    assert (found.broken, found.duplicates) == ({"regressed": [2]}, 1)


@pytest.mark.parametrize(
    "changes",
    [{"value": b"?"}, {"key": "?"}, {"headers": []}, {"partition": 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_record_that_is_not_as_written_is_found(
    ledger: Ledger, changes: dict[str, object]
) -> None:
    found = audit_one(ledger, [delivery(1), delivery(2, **changes), delivery(3)])
    assert found.broken == {"spoilt": [2]}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def lags(*times: tuple[float, float]) -> Lags:
    """Of records with these times of commit and of log."""
    ledger = Ledger(committed_at={f"m{n}": at for n, (at, _) in enumerate(times)})
    sent = [delivery(n, appended_at=end) for n, (_, end) in enumerate(times)]
    return Lags(ledger, [*sent, *[replace(d, appended_at=99.0) for d in sent]])


def test_the_lag_of_a_record_ends_with_its_first_delivery() -> None:
    measured = lags((1.0, 1.002), (2.0, 2.004), (3.0, 2.999))
    assert measured.seconds == pytest.approx([0.002, 0.004, 0.0])
    assert measured.percentile(50) == pytest.approx(0.002)


def test_a_backlog_is_gone_with_its_last_late_record() -> None:
    steady = [(n / 10, n / 10 + 0.01) for n in range(10)]
    backlog = [(1 + n / 10, 5 + n / 10) for n in range(50)]
    caught_up = [(6 + n / 10, 10 + n / 100) for n in range(40)]
    later = [(10 + n / 10, 10 + n / 10 + 0.01) for n in range(5, 30)]
    hiccup = [(13.0, 14.0)]
    measured = lags(*steady, *backlog, *caught_up, *later, *hiccup)
    stopped, late = measured.longest_stop()
    assert stopped == pytest.approx(5 - 0.91)
    assert late == pytest.approx(10.38 - 5)


def test_a_stop_may_begin_with_the_first_commit() -> None:
    assert lags((0.0, 3.0), (3.0, 3.1)).longest_stop() == (3.0, 0.0)
