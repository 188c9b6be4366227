"""What is written is read, garbage is refused: for values that nobody thought of."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_outbox.election.ports import Heartbeat
from django_outbox.exceptions import KafkaError
from django_outbox.kafka import heartbeats, ledger_topic
from django_outbox.message.record import Record
from django_outbox.relay.gaps import Gaps
from django_outbox.relay.ledger.committed_ids import CommittedIds, IdRange, extended
from django_outbox.relay.ledger.ports import Ledger

anything = settings(
    # A busy machine is slow, and a failure prints what it takes to see it again.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    print_blob=True,
)

INT64 = st.integers(-(2**63), 2**63 - 1)

NUMBERS = st.floats() | st.integers()

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["node", "nonce", "sent_at", "x"]), inner, max_size=4
        )
    ),
    max_leaves=6,
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    records = draw(
        st.lists(
            st.builds(
                Record.identified, INT64, st.builds(str, st.uuids(allow_nil=True))
            ),
            max_size=5,
        )
    )
    ids = draw(st.sets(st.integers(0, 2**40), max_size=20))
    ranges = extended(
        (), [committed(id_) for id_ in sorted(ids)], step=draw(st.integers(2, 32))
    )
    return Ledger(
        timeline=draw(st.text()),
        records=records,
        relayed=tuple(ranges),
    )


@anything
@given(
    st.builds(
        Heartbeat,
        node=st.text(max_size=200),
        nonce=st.text(max_size=200),
        sent_at=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_a_heartbeat_that_is_written_is_read(heartbeat: Heartbeat) -> None:
    assert heartbeats.decode(heartbeats.encode(heartbeat)) == heartbeat


@anything
@given(st.none() | st.binary())
def test_any_bytes_are_a_heartbeat_or_none(value: bytes | None) -> None:
    found = heartbeats.decode(value)
    assert found is None or isinstance(found, Heartbeat)


@anything
@given(
    JSON
    | st.fixed_dictionaries({"node": st.text(), "nonce": st.text(), "sent_at": NUMBERS})
)
def test_any_json_is_a_heartbeat_or_none(value: Any) -> None:
    found = heartbeats.decode(json.dumps(value).encode())
    if found is not None:
        assert isfinite(found.sent_at)
        assert found == Heartbeat(
            node=value["node"], nonce=value["nonce"], sent_at=value["sent_at"]
        )


@anything
@given(ledgers())
def test_a_ledger_that_is_written_is_read(written: Ledger) -> None:
    headers, value = ledger_topic.encode(written)
    read = ledger_topic.decode({name: str(text) for name, text in headers}, value)

    assert (read.timeline, read.relayed) == (written.timeline, written.relayed)
    assert [(r.id, r.message_id) for r in read.records] == [
        (r.id, r.message_id) for r in written.records
    ]


@anything
@given(
    st.dictionaries(
        st.sampled_from(["ledger-format", "ledger-ranges", "ledger-history"]),
        st.sampled_from(["1", "2", "0", "-1", "²", "9" * 5000]) | st.text(max_size=5),
    ),
    st.binary(max_size=200),
)
def test_any_message_is_a_ledger_or_refused(
    fields: dict[str, str], value: bytes
) -> None:
    with suppress(KafkaError):
        assert isinstance(ledger_topic.decode(fields, value), Ledger)


def committed(id_: int) -> Record:
    return Record.identified(id_, str(uuid.UUID(int=id_)))._replace(created_at="0")


@anything
@given(
    step=st.integers(1, 4),
    ids=st.sets(st.integers(0, 60), max_size=40).map(sorted),
    size=st.integers(1, 10),
)
def test_ranges_hold_what_was_committed_and_nothing_else(
    step: int, ids: list[int], size: int
) -> None:
    ranges: Sequence[IdRange] = ()
    for batch in batched(ids, size):
        ranges = extended(ranges, [committed(id_) for id_ in batch], step=step)

    relayed = CommittedIds(ranges)
    assert [id_ for id_ in range(70) if committed(id_) in relayed] == ids


@anything
@given(
    order=st.permutations(range(1, 13)),
    size=st.integers(1, 12),
    limit=st.integers(1, 8),
)
def test_every_row_is_shown_once_in_whatever_order_rows_are_committed(
    order: list[int], size: int, limit: int
) -> None:
    """Their writer is there all the time, so that no gap is given up."""
    gaps, table, shown = Gaps(), set[int](), list[int]()
    # With nothing new at the end, there are still pages to read.
    for arrived in [*batched(order, size), *[[]] * len(order)]:
        table.update(arrived)
        ranges = [*gaps.ranges, (gaps.position + 1, max(order))]
        page = [id_ for id_ in sorted(table) if any(a <= id_ <= b for a, b in ranges)]
        gaps.shown(page[:limit])
        shown += page[:limit]
        gaps.note_writers(frozenset({"a writer"}), is_one_prepared=False)

    assert sorted(shown) == sorted(order)


def batched(ids: list[int], size: int) -> list[list[int]]:
    return [ids[at : at + size] for at in range(0, len(ids), size)]
