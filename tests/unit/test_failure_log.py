"""Failed deliveries: each cause is logged at once, and rarely while it lasts."""

from __future__ import annotations

import pytest

from django_outbox.message.record import Failure, Record
from django_outbox.relay.failure_log import FailureLog


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.log = FailureLog(lambda: self.now)

    def fail(
        self, *ids: int, topic: str = "orders", error: str = "_MSG_TIMED_OUT: late"
    ) -> None:
        records = [Record.identified(id_, "")._replace(topic=topic) for id_ in ids]
        self.log.note([Failure(record, error) for record in records])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_new_cause_is_logged_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.fail(7)
    bench.fail(8, 9, 10, topic="bills")
    bench.fail(11, error="MSG_SIZE_TOO_LARGE: Broker: Message size too large")

    assert caplog.messages == [
        "Cannot deliver record 7 to orders: _MSG_TIMED_OUT: late",
        "Cannot deliver record 8 and 2 more to bills: _MSG_TIMED_OUT: late",
        "Cannot deliver record 11 to orders: MSG_SIZE_TOO_LARGE: Broker: Message size"
        " too large",
    ]


def test_a_cause_that_lasts_is_logged_at_growing_intervals(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    logged = []
    for second in range(3600):
        bench.now = 100.0 + second
        bench.fail(second, second + 1)
        if caplog.records:
            logged.append((second, getattr(caplog.records[0], "records", 0)))
            caplog.clear()

    assert [second for second, _ in logged] == [0, 60, 180, 420, 900, 1860, 2820]
    assert [count for _, count in logged] == [2, 120, 240, 480, 960, 1920, 1920]


def test_a_text_that_varies_is_no_new_cause(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.fail(1, error="_MSG_TIMED_OUT: not acknowledged within 3 s")
    bench.fail(2, error="_MSG_TIMED_OUT: Local: Message timed out")
    assert len(caplog.messages) == 1


def test_a_cause_that_was_over_is_logged_at_once_when_it_returns(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.fail(1)
    bench.now += 59.0
    bench.fail(2)
    bench.now += 61.0
    bench.fail(3)
    assert [message.split()[3] for message in caplog.messages] == ["1", "3"]
