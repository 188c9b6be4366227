"""How a ledger is written into a message, and what is not taken for one."""

from __future__ import annotations

import logging
import struct
import uuid

import pytest

from django_outbox.exceptions import KafkaError, LedgerInvalid
from django_outbox.kafka.ledger_topic import (
    Entry,
    announcement,
    decode,
    encode,
    tail_of,
)
from django_outbox.message.record import Record
from django_outbox.relay.ledger.committed_ids import MAX_RANGES, IdRange
from django_outbox.relay.ledger.ports import Ledger
from tests.unit.samples import record

ONE = record(1)
PAIR = bytes.fromhex("0000000000000001" + ONE.message_id.replace("-", ""))
RANGE = bytes.fromhex("0000000000000002000000000000000800000000000000090003")

TIMELINE = "7300000000000000000/00000001"


def fields(*, ranges: int | str = 0, **others: str) -> dict[str, str]:
    """The headers of a ledger."""
    return {
        "outbox-ledger-format": "1",
        "outbox-ledger-timeline": TIMELINE,
        "outbox-ledger-ranges": str(ranges),
        **{name.replace("_", "-"): text for name, text in others.items()},
    }


def packed(*ranges: IdRange) -> bytes:
    return b"".join(
        struct.pack(">qqqH", one.low, one.high, one.newest, one.step) for one in ranges
    )


def test_a_ledger_is_written_under_names_that_no_row_may_have() -> None:
    ranges = (IdRange(2, 8, 3, 9),)
    headers, value = encode(Ledger(timeline=TIMELINE, records=[ONE], relayed=ranges))

    assert dict(headers) == fields(ranges=1)
    assert value == PAIR + RANGE
    assert all(name.startswith("outbox-") for name, _ in headers)


@pytest.mark.parametrize(
    ("records", "ranges"),
    [
        ([], ()),
        ([ONE], ()),
        (
            [ONE, record(5)._replace(id=-5)],
            (IdRange(-33, -1, 32, 0), IdRange(2, 8, 3, 9)),
        ),
        ([], (IdRange(2, 8, 2, 0), IdRange(3, 9, 3, 0), IdRange(12, 14, 2, 0))),
    ],
)
def test_what_is_written_is_read(
    records: list[Record], ranges: tuple[IdRange, ...]
) -> None:
    headers, value = encode(Ledger(timeline="h", records=records, relayed=ranges))

    read = decode({name: str(text) for name, text in headers}, value)

    assert (read.timeline, read.relayed) == ("h", ranges)
    assert [(r.id, r.message_id) for r in read.records] == [
        (r.id, r.message_id) for r in records
    ]


def test_no_value_is_a_ledger_that_lists_nothing() -> None:
    assert decode({}, None) == Ledger(timeline="", records=[])


@pytest.mark.parametrize("number", ["2", "999999"])
def test_a_later_format_is_not_guessed(number: str) -> None:
    with pytest.raises(KafkaError, match="Upgrade it, or void the ledger") as caught:
        decode(fields(outbox_ledger_format=number), PAIR)

    assert not isinstance(caught.value, LedgerInvalid)


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        pytest.param({}, b"", id="no header"),
        pytest.param(
            {"ledger-format": "1", "ledger-history": "h"}, PAIR, id="a user's"
        ),
        pytest.param(fields(outbox_ledger_format="0"), PAIR, id="format 0"),
        pytest.param(fields(outbox_ledger_format="one"), PAIR, id="format one"),
        pytest.param(fields(outbox_ledger_format="9" * 5000), PAIR, id="format huge"),
        pytest.param(fields(outbox_message_id=ONE.message_id), PAIR, id="a row"),
        pytest.param(
            {"outbox-message-id": ONE.message_id}, None, id="a row's tombstone"
        ),
        pytest.param(fields(), PAIR + b"x", id="one byte more"),
        pytest.param(fields(), PAIR[:-1], id="one byte less"),
        pytest.param(fields(ranges=1), PAIR, id="ranges missing"),
        pytest.param(fields(ranges=2), RANGE, id="one range missing"),
        pytest.param(fields(ranges="many"), PAIR + RANGE, id="no number"),
        pytest.param(fields(ranges="-1"), PAIR, id="negative"),
        pytest.param(fields(ranges="٣"), PAIR, id="another script"),
        pytest.param(fields(ranges="9" * 5000), PAIR, id="huge"),
        pytest.param(
            fields(ranges=MAX_RANGES + 1),
            packed(*(IdRange(4 * n, 4 * n, 2, 0) for n in range(MAX_RANGES + 1))),
            id="too many",
        ),
    ],
)
def test_what_is_no_ledger_is_refused(
    headers: dict[str, str], value: bytes | None
) -> None:
    with pytest.raises(LedgerInvalid):
        decode(headers, value)


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param([IdRange(1, 9, 0, 0)], id="step 0"),
        pytest.param([IdRange(-(2**63), 2**63 - 1, 1, 2**63 - 1)], id="every id"),
        pytest.param([IdRange(0, 330, 33, 0)], id="more clusters than there can be"),
        pytest.param([IdRange(9, 1, 2, 0)], id="backwards"),
        pytest.param([IdRange(1, 4, 2, 0)], id="ends between two ids"),
        pytest.param([IdRange(8, 10, 2, 0), IdRange(2, 4, 2, 0)], id="out of order"),
        pytest.param([IdRange(2, 8, 2, 0), IdRange(6, 10, 2, 0)], id="overlapping"),
        pytest.param(
            [IdRange(2, 8, 2, 0), IdRange(3, 5, 2, 0), IdRange(8, 10, 2, 0)],
            id="overlapping with another between",
        ),
    ],
)
def test_ranges_that_no_outbox_writes_are_refused(ranges: list[IdRange]) -> None:
    with pytest.raises(LedgerInvalid):
        decode(fields(ranges=len(ranges)), packed(*ranges))


def entry(offset: int, ledger: Ledger | None, *, key: bytes = b"0") -> Entry:
    """A record of the topic: a ledger, or junk."""
    if ledger is None:
        return Entry.of(offset, key, [("x", b"y")], b"junk")
    headers, value = encode(ledger)
    raw = [(name, str(text).encode()) for name, text in headers]
    return Entry.of(offset, key, raw, value)


FIRST, SECOND = (Ledger(timeline=text, records=[]) for text in ("first", "second"))


def found(*entries: Entry) -> Ledger | None:
    return tail_of(entries, topic="t.ledger", shard=0).ledger


def test_the_last_ledger_is_found_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert found() is None
    assert found(entry(0, None), entry(1, FIRST), entry(2, SECOND)) == SECOND
    assert caplog.records == []


def test_announcements_behind_the_last_ledger_count() -> None:
    before, behind = (
        [announced(offset, shards=shards) for offset, shards in of_each]
        for of_each in ([(0, 2), (1, 3)], [(3, 4), (4, 5)])
    )
    tail = tail_of([*before, entry(2, FIRST), *behind], topic="t.ledger", shard=0)

    assert tail.ledger == FIRST
    assert tail.announced == {4, 5}
    assert tail.numbers == {1, 4, 5}


@pytest.mark.parametrize("key", [b"1-of-4", b"0-of-0", b"0-of-33", b"0-of-4 "])
def test_an_announcement_that_nobody_could_have_made_is_skipped(
    key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    made = announced(1, shards=4)._replace(key=key)

    tail = tail_of([entry(0, FIRST), made], topic="t.ledger", shard=0)

    assert tail == (FIRST, frozenset())
    assert "Skipped 1 invalid record" in caplog.text


def announced(offset: int, *, shards: int) -> Entry:
    key, headers = announcement(0, shards)
    raw = [(name, str(text).encode()) for name, text in headers]
    return Entry.of(offset, key.encode(), raw, b"")


def test_junk_is_skipped_for_the_ledger_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = entry(3, SECOND, key=b"1")

    assert found(entry(1, FIRST), entry(2, None), stranger) == FIRST
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert "Skipped 2 invalid record(s)" in line.getMessage()
    assert "offset 3: it has another key" in line.getMessage()
    assert "docs/operations/ledger.md" in line.getMessage()


def test_where_only_junk_is_left_there_is_no_ledger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert found(entry(1, None)) is None
    assert "may be sent again" in caplog.text


def test_a_tombstone_voids_the_ledgers_before_it() -> None:
    void = Entry.of(2, b"0", [], None)

    assert found(entry(1, FIRST), void) == Ledger(timeline="", records=[])
    assert found(entry(1, FIRST), void, entry(3, SECOND)) == SECOND


def test_of_large_junk_nothing_is_kept() -> None:
    headers = [("outbox-message-id", b"m"), ("outbox-ledger-format", b"1")]
    for raw in (headers[:1], headers, [("x", b"y" * 1_000_000)]):
        kept = Entry.of(1, b"0", raw, b"v" * 1_000_000)
        assert len(kept.value or b"") + sum(map(len, kept.fields.values())) < 100


def test_the_message_ids_are_uuids_again() -> None:
    (read,) = decode(fields(), PAIR).records

    assert read.message_id == str(uuid.UUID(ONE.message_id))
