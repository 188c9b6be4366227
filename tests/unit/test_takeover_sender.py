"""One cluster that relays another's records, on one Kafka, on fakes."""

from __future__ import annotations

import pytest

from django_outbox.exceptions import KafkaUnavailable
from django_outbox.kafka import ledger_topic as ledgers
from django_outbox.message.headers import texts
from django_outbox.message.record import Record
from django_outbox.relay.ledger.ledger_sender import Stage
from django_outbox.relay.ledger.ports import Ledger
from django_outbox.relay.ledger.takeover_sender import REFUSED_DELAYS
from django_outbox.relay.takeovers import TakeoverChange
from django_outbox.settings.options import OutboxSettings
from tests.fakes.producer import refusal
from tests.fakes.transactions import InMemoryTransactions

from .leading import Term
from .ledger_bench import Cluster, LedgerBench

QUIET = 10.0

ORIGIN = 0

LEDGER_TOPIC = OutboxSettings(CLUSTERS_COUNT=3).ledger_topic_of(ORIGIN)


class Site(Cluster):
    """One of three clusters with a database of its own; they share one Kafka."""

    def __init__(self, origin: Site | None = None, *, number: int = ORIGIN) -> None:
        super().__init__()
        self.number = number
        if origin is not None:
            self.log, self.transactor = origin.log, origin.transactor

    def transactions(self) -> InMemoryTransactions:
        options = OutboxSettings(CLUSTERS_COUNT=3, CLUSTER_ID=self.number)
        return InMemoryTransactions(self.log, self.transactor, options, origin=ORIGIN)

    def write(self, *ids: int, to: tuple[Site, ...] = ()) -> None:
        """Let the origin's rows be in this database, and in those."""
        for id in ids:
            row = self.table.make("t", "k", str(id), record_id=id)
            self.table.put([row])
            for other in to:
                other.table.put([row])

    @property
    def last(self) -> Ledger:
        """The last ledger of the origin's records."""
        last = self.log.of(LEDGER_TOPIC)[-1]
        return ledgers.decode(texts(last.headers), last.value or b"")

    @property
    def opened(self) -> int:
        """How often the origin's transactional id was taken over."""
        state = self.transactor._states.get("outbox-leader.0")
        return 0 if state is None else state.epoch + 1


class Process(LedgerBench):
    """A process of one cluster: of the origin, or of one that may take over."""

    def __init__(self, site: Site) -> None:
        self.changes: list[TakeoverChange] = []
        is_own = site.number == ORIGIN
        super().__init__(
            site,
            is_own=is_own,
            this_cluster=site.number,
            clusters=3,
            quiet=QUIET,
            blocks=True,
        )

    def round(self) -> float:
        rest = super().round()
        self.changes += self.engine.takeovers.changes()
        return rest

    @property
    def told(self) -> list[str]:
        return ["ended" if change.has_ended else "started" for change in self.changes]


@pytest.fixture
def origin() -> Site:
    return Site()


@pytest.fixture
def other(origin: Site) -> Site:
    return Site(origin, number=1)


@pytest.fixture
def taker(other: Site) -> Process:
    return Process(other)


def test_nothing_is_opened_while_there_is_nothing_to_take_over(
    origin: Site, taker: Process
) -> None:
    taker.run(60)

    assert origin.opened == 0
    assert taker.sender.stage is Stage.CLOSED
    assert taker.told == []


def test_it_reads_for_a_twentieth_of_the_time(taker: Process) -> None:
    """A page takes a tenth of a second here."""
    taker.run(100)

    assert len(taker.asked) == 5


def test_what_is_found_is_relayed_and_purged_here(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3, 6, 9, to=(other,))
    taker.run()

    assert origin.seen == ["3", "6", "9"]
    assert other.left == []
    assert origin.left == [3, 6, 9]
    assert taker.changes[0]._replace(leader_id="") == TakeoverChange(
        "", ORIGIN, 3, has_ended=False
    )


def test_rows_that_may_be_taken_over_at_once_go_in_the_order_of_their_ids(
    origin: Site, other: Site, taker: Process
) -> None:
    """Their times are those of transactions, and do not grow with the ids."""
    origin.write(24, to=(other,))
    taker.run(20)
    assert origin.seen == ["24"]

    for step in range(12):
        low, high = 3 * (step + 1) - 1, 27 + 3 * step
        origin.write(low, high, to=(other,))
        taker.run(step + 1)

    taker.run(40)
    order = [int(value) for value in origin.seen[1:]]
    assert len(order) == 24
    assert all(
        order.index(3 * (step + 1) - 1) < order.index(27 + 3 * step)
        for step in range(12)
    )


def test_pages_that_values_fill_follow_each_other_at_once(
    origin: Site, other: Site, taker: Process
) -> None:
    """Not at the pace of scans that find nothing."""
    other.table._page_bytes = 1
    origin.write(*range(3, 63, 3), to=(other,))

    taker.run(60)

    assert len(origin.seen) == 20


def test_a_takeover_ends_when_nothing_was_found_for_long(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3, to=(other,))
    taker.run(80)
    assert taker.told == ["started"]

    taker.run(80)

    assert taker.told == ["started", "ended"]
    assert taker.sender.stage is Stage.CLOSED
    origin.write(6, to=(other,))
    taker.run()
    assert origin.seen == ["3", "6"]
    assert taker.told == ["started", "ended", "started"]


def test_a_takeover_lasts_while_something_is_not_purged(
    origin: Site, other: Site, taker: Process
) -> None:
    taker.is_settling = False
    origin.write(3, to=(other,))
    taker.run(200)
    assert taker.sender.stage is Stage.RELAYING

    taker.is_settling = True
    taker.run()

    assert taker.sender.stage is Stage.CLOSED
    assert other.left == []


def test_an_origin_that_returns_purges_what_was_relayed_and_sends_the_rest(
    origin: Site, other: Site, taker: Process
) -> None:
    """The last ledger lists one row, and its range holds both."""
    origin.write(3, to=(other,))
    taker.run()
    origin.write(6, to=(other,))
    taker.run()
    assert [record.id for record in origin.last.records] == [6]
    origin.write(9)
    Process(origin).run()

    assert origin.seen == ["3", "6", "9"]
    assert origin.left == []
    assert [(r.low, r.high, r.step) for r in origin.last.relayed] == [(3, 9, 3)]
    # An earlier ledger has told of 3, and the range does.
    assert [record.id for record in origin.last.records] == [9]


def test_rows_that_the_origin_has_sent_are_purged_without_disturbing_it(
    origin: Site, other: Site, taker: Process
) -> None:
    """Its purges have not come here."""
    Process(origin).run()
    origin.write(3, 6, to=(other,))
    sender = Process(origin)
    sender.run()
    taker.run()

    assert origin.seen == ["3", "6"]
    assert other.left == []
    assert taker.told == []
    origin.write(9)
    before = origin.opened
    sender.run()
    assert origin.seen == ["3", "6", "9"]
    assert origin.opened == before


def test_many_rows_that_are_sent_are_purged_page_by_page(
    origin: Site, other: Site, taker: Process
) -> None:
    ids = range(3, 100, 3)
    origin.write(*ids, to=(other,))
    Process(origin).run(60)
    taker.run()

    assert other.left == []
    assert origin.seen == [str(id) for id in ids]


def test_of_two_that_take_over_the_second_sends_what_the_first_has_left(
    origin: Site, other: Site, taker: Process
) -> None:
    third = Site(origin, number=2)
    origin.write(3, 6, to=(other, third))
    taker.run()
    origin.write(9, to=(third,))
    Process(third).run()

    assert origin.seen == ["3", "6", "9"]
    assert third.left == []


def test_whoever_is_fenced_keeps_away_for_a_while(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3, to=(other,))
    taker.run()
    returned = Process(origin)
    returned.run()
    origin.write(6, to=(other,))
    before = origin.opened
    taker.run(90)
    assert taker.told == ["started", "ended"]
    assert origin.opened == before
    returned.run()
    assert origin.seen == ["3", "6"]

    taker.run()

    # In the ledger by now: nothing had to be opened.
    assert other.left == []
    assert origin.opened == before


def test_records_that_nobody_can_send_fence_the_origin_seldom(
    origin: Site, other: Site, taker: Process
) -> None:
    """It is alive, and what it sends beside them would wait each time."""
    before = stuck(origin, other, taker)

    taker.run(int(10 * (REFUSED_DELAYS - 1) * QUIET))
    assert taker.told == ["started", "ended"]
    assert origin.opened == before
    # Nobody else may be there to try again.
    taker.transactions.refused.clear()
    taker.run(int(10 * 2 * QUIET))
    assert origin.seen == ["3"]


def test_records_that_can_be_sent_are_taken_over_beside_those_that_cannot(
    origin: Site, other: Site, taker: Process
) -> None:
    stuck(origin, other, taker)
    taker.run(int(10 * QUIET))
    other.table.put([origin.table.make("t", "other", "6", record_id=6)])
    # It was fenced when it tried the stuck record again, and keeps away since then.
    taker.run(int(10 * QUIET))
    assert origin.seen == ["6"]


def stuck(origin: Site, other: Site, taker: Process) -> int:
    """
    Let both clusters fail to send a record, and the origin come back.

    Returns how often its transactional id was taken over until then.
    """
    origin.write(3, to=(other,))
    (record,) = origin.table.records()
    returned = Process(origin)
    for process in (taker, returned):
        process.transactions.refused[record.message_id] = refusal("TOPIC_AUTHORIZATION")
    taker.run()
    assert taker.told == ["started"]
    returned.run()
    return origin.opened


def test_the_timeline_is_that_of_the_origin(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3)
    Process(origin).run()
    timeline = origin.table.database_timeline()
    other.table.promote(other.table.standby())
    assert other.table.database_timeline() != timeline
    origin.write(6, to=(other,))
    taker.run()

    assert origin.last.timeline == timeline


def test_a_ledger_of_others_only_is_believed(
    origin: Site, other: Site, taker: Process
) -> None:
    for number in (3, 6):
        origin.write(number, to=(other,))
        taker.run()
    assert origin.last.timeline == ""
    assert [record.id for record in origin.last.records] == [6]
    origin.write(9)

    Process(origin).run()

    # The page has a row that only the ranges of the ledger speak for, and a new one.
    assert origin.left == []
    assert origin.seen == ["3", "6", "9"]


def test_after_a_failover_of_the_origin_what_was_relayed_is_void(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3)
    standby = origin.table.standby()
    Process(origin).run()
    origin.table.promote(standby)
    Process(origin).run()

    assert origin.seen == ["3", "3"]


def test_a_page_that_fails_is_read_again(
    origin: Site, other: Site, taker: Process
) -> None:
    other.table.is_down = True
    taker.run()
    other.table.is_down = False
    origin.write(3, to=(other,))
    taker.run(60)

    assert origin.seen == ["3"]
    assert taker.leadership.resigned == ""


def test_a_ledger_that_cannot_be_read_is_read_later(
    origin: Site, other: Site, taker: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.write(3, to=(other,))
    with monkeypatch.context() as patch:
        patch.setattr(taker.transactions, "read", _unavailable)
        taker.run()
    assert origin.opened == 0

    taker.run()

    assert origin.seen == ["3"]


def test_the_end_of_a_term_ends_its_takeover(
    origin: Site, other: Site, taker: Process
) -> None:
    origin.write(3, to=(other,))
    taker.run()
    taker.leadership.term = None
    taker.run()
    assert taker.told == ["started", "ended"]
    assert taker.sender.stage is Stage.CLOSED

    taker.leadership.term = Term(leader_id="id-2", acquired_at=taker.now)
    before = origin.opened
    taker.run()
    assert origin.opened == before


def test_a_drain_waits_for_what_was_relayed(
    origin: Site, other: Site, taker: Process
) -> None:
    taker.is_settling = False
    origin.write(3, to=(other,))
    taker.run()
    assert taker.leadership.term is not None
    taker.queue.begin_drain(taker.leadership.term)
    taker.run()
    assert not taker.queue.wait_drained(0)

    taker.is_settling = True
    taker.run()

    assert taker.queue.wait_drained(0)
    assert other.left == []


def test_a_row_that_cannot_be_read_blocks_its_key_only(origin: Site) -> None:
    """The ledger has the time of the newest record, and a takeover compares it."""
    written = origin.table.make("t", "k", record_id=6)
    unreadable = Record.unreadable(
        written.id, written.ordering_key, written.message_id, reason="bytes"
    )
    origin.write(3)
    origin.table.put([unreadable])
    origin.table.insert("t", "other", "9", record_id=9)
    process = Process(origin)
    process.run()

    assert sorted(origin.seen) == ["3", "9"]
    assert origin.left == [6]
    assert ("t", "k") in process.engine.blocked


# Rows that stay.


def test_paused_rows_are_passed_over(origin: Site, other: Site, taker: Process) -> None:
    """They neither hide rows behind them nor disturb the origin."""
    paused = [origin.table.make("paused", "k", "p", record_id=n) for n in range(3, 99)]
    other.table.put(paused)
    other.table.paused = [("paused", None)]
    taker.run(100)
    assert len(taker.asked) <= 11
    assert origin.opened == 0

    origin.write(100, to=(other,))
    taker.run()

    assert origin.seen == ["100"]
    assert other.left == [row.id for row in paused]
    other.table.paused = []
    taker.run(60)
    assert other.left == []


def test_a_key_that_is_paused_hides_no_other(
    origin: Site, other: Site, taker: Process
) -> None:
    paused = [origin.table.make("t", "paused", "p", record_id=n) for n in range(3, 99)]
    other.table.put(paused)
    other.table.paused = [("t", "paused")]
    origin.write(100, to=(other,))
    taker.run(60)

    assert origin.seen == ["100"]


def test_a_row_that_does_not_leave_the_table_is_read_once(
    origin: Site, other: Site, taker: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin.write(3, to=(other,))
    Process(origin).run()
    reads = _counted(monkeypatch, taker)
    other.table.locked_ids = {3}
    taker.run(60)
    assert other.left == [3]
    assert len(reads) == 1

    other.table.locked_ids = set()
    taker.run(60)
    assert other.left == []
    assert taker.told == []


def test_rows_that_were_purged_are_forgotten(
    origin: Site, other: Site, taker: Process
) -> None:
    for id in range(3, 30, 3):
        origin.write(id, to=(other,))
        Process(origin).run()
        taker.run()
    assert other.left == []

    assert taker.sender._seen == {27}


def _counted(monkeypatch: pytest.MonkeyPatch, process: Process) -> list[Ledger | None]:
    """Return what a process reads of the ledger, as it does."""
    found: list[Ledger | None] = []
    read = process.transactions.read

    def counted() -> Ledger | None:
        found.append(read())
        return found[-1]

    monkeypatch.setattr(process.transactions, "read", counted)
    return found


def _unavailable() -> Ledger | None:
    raise KafkaUnavailable
