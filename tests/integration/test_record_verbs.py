"""What `manage.py outbox` does to single records: park, skip, release."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_outbox.models import OutboxRecord, ParkedRecord
from django_outbox.operations import by_hand

from .outbox_command import run

pytestmark = pytest.mark.django_db


def record(number: int, *, attempts: int = 0) -> OutboxRecord:
    made: OutboxRecord = OutboxRecord.objects.create(
        id=number,
        kafka_topic="orders",
        kafka_key="secret",
        kafka_value="secret",
        attempts=attempts,
        last_error="MSG_SIZE_TOO_LARGE\nforged" if attempts else "",
    )
    return made


class Keyboard(io.StringIO):
    """Standard input with somebody at it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers the next question."""

    def answer(text: str) -> None:
        monkeypatch.setattr("sys.stdin", Keyboard(text))

    return answer


def left() -> set[int]:
    return set(OutboxRecord.objects.values_list("id", flat=True))


def test_skip_drops_blocked_records_only_after_a_yes(
    typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    record(1, attempts=3)
    record(2, attempts=1)
    typed("yes\n")
    assert run("skip", "1") == "1 record dropped\n"
    assert left() == {2}
    asked = capsys.readouterr().err
    assert asked.splitlines() == [
        r"record 1 to orders, 3 attempts: MSG_SIZE_TOO_LARGE\nforged",
        "Drop 1 record for good? Its message is lost. Type yes to go on: ",
    ]


@pytest.mark.parametrize("answer", ["no\n", "y\n", "\n", ""])
def test_any_other_answer_keeps_them(typed: Any, answer: str) -> None:
    record(1, attempts=3)
    typed(answer)
    with pytest.raises(CommandError, match=r"^Nothing was changed\.$"):
        run("skip", "1")
    assert left() == {1}


def test_without_a_terminal_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(1, attempts=3)
    with pytest.raises(CommandError, match="Nobody to ask here: say --yes"):
        run("skip", "1")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandError, match="Nobody to ask here: say --yes"):
        run("skip", "1")
    assert left() == {1}
    shown = json.loads(run("skip", "1", "--yes", "--json"))
    assert (shown["skipped"], shown["wanted"]) == (1, 1)
    assert [row["id"] for row in shown["rows"]] == [1]
    assert "secret" not in str(shown)
    assert left() == set()


def test_a_record_that_has_not_failed_is_not_dropped() -> None:
    record(1, attempts=3)
    record(2)
    with pytest.raises(CommandError, match="1 of 2 are not blocked"):
        run("skip", "1", "2", "--yes")
    assert left() == {1, 2}
    assert by_hand.skip("default", [1, 2]) == by_hand.Outcome(done=1, wanted=2)
    assert left() == {2}


def test_a_parked_record_is_dropped_by_its_own_id() -> None:
    record(1, attempts=3)
    for number in (7, 8):
        ParkedRecord.objects.create(
            parked_id=number, id=1, kafka_topic="orders", kafka_key="secret"
        )
    assert run("skip", "--parked", "8", "--yes") == "1 record dropped\n"
    assert list(ParkedRecord.objects.values_list("parked_id", flat=True)) == [7]
    with pytest.raises(CommandError, match="1 of 2 are not parked"):
        run("skip", "--parked", "7", "8", "--yes")
    assert left() == {1}


def test_park_and_release_are_the_functions_of_the_admin() -> None:
    record(1, attempts=3)
    record(2)
    assert by_hand.park("default", [1, 1, 2]) == by_hand.Outcome(done=1, wanted=2)
    (parked,) = ParkedRecord.objects.values_list("parked_id", flat=True)
    assert by_hand.release("default", [parked, parked + 1]).left == 1
    assert left() == {1, 2}
    assert by_hand.release("default", "all") == by_hand.Outcome(done=0, wanted=0)


def test_all_are_released_without_a_parameter_for_each() -> None:
    """With Django's server_side_binding, a statement has 65,535 at most."""
    for number in (1, 2, 3):
        record(number, attempts=3)
    by_hand.park("default", [1, 2, 3])
    with CaptureQueriesContext(connection) as queries:
        assert by_hand.release("default", "all") == by_hand.Outcome(done=3, wanted=3)
    assert left() == {1, 2, 3}
    assert not [q["sql"] for q in queries if '"parked_id" IN' in q["sql"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["prune", "--older-than", "1d"],
        ["prune", "--older-than", "1d", "--processed"],
        ["series", "discard", "one"],
    ],
)
def test_every_verb_asks_before_it_drops(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=r"for good.*say --yes"):
        run(*arguments)
