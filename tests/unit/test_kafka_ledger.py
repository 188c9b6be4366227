"""How a ledger is written into a message, and read from it."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import KafkaError
from django_outbox.kafka.ledger import decode, encode
from django_outbox.ledger.ports import Ledger
from django_outbox.ledger.relayed import Range
from tests.unit.samples import record

ONE = record(1)
PAIR = bytes.fromhex("0000000000000001" + ONE.message_id.replace("-", ""))
RANGE = bytes.fromhex("0000000000000002000000000000000800000000000000090003")


def test_a_single_cluster_writes_what_earlier_versions_read() -> None:
    headers, value = encode(Ledger(history="h", records=[ONE]))

    assert dict(headers) == {"ledger-format": "1", "ledger-history": "h"}
    assert value == PAIR


def test_ranges_follow_the_records_in_a_format_of_their_own() -> None:
    ranges = (Range(2, 8, 3, 9),)
    headers, value = encode(Ledger(history="h", records=[ONE], relayed=ranges))

    assert dict(headers) == {
        "ledger-format": "2",
        "ledger-history": "h",
        "ledger-ranges": "1",
    }
    assert value == PAIR + RANGE


def test_both_formats_are_read() -> None:
    first = decode({"ledger-format": "1", "ledger-history": "h"}, PAIR)
    second = decode({"ledger-format": "2", "ledger-ranges": "1"}, PAIR + RANGE)

    assert [r.message_id for r in first.records] == [ONE.message_id]
    assert (first.history, first.relayed) == ("h", ())
    assert [r.message_id for r in second.records] == [ONE.message_id]
    assert (second.history, second.relayed) == ("", (Range(2, 8, 3, 9),))


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({}, b""),
        ({"ledger-format": "3"}, PAIR),
        ({"ledger-format": "1"}, PAIR + b"x"),
        ({"ledger-format": "2", "ledger-ranges": "1"}, PAIR),
        ({"ledger-format": "2", "ledger-ranges": "2"}, RANGE),
        ({"ledger-format": "2", "ledger-ranges": "many"}, PAIR + RANGE),
    ],
)
def test_what_is_no_ledger_is_refused(fields: dict[str, str], value: bytes) -> None:
    with pytest.raises(KafkaError, match="no ledger of this version"):
        decode(fields, value)


def test_what_is_written_is_read() -> None:
    ledger = Ledger(history="h", records=[], relayed=(Range(-9, -1, 32, 0),))
    headers, value = encode(ledger)

    assert decode({name: str(text) for name, text in headers}, value) == ledger
