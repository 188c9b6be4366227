"""The view behind the live page: who may ask it, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_outbox.admin import live_page
from django_outbox.admin.record_actions import note
from django_outbox.exceptions import ConfigurationError
from django_outbox.models import OutboxRecord, ParkedRecord
from django_outbox.operations import leader

from ..waiting import eventually
from .test_admin import MESSAGE, staff
from .transactions import begun

pytestmark = pytest.mark.django_db

PAGE = reverse("admin:django_outbox_live")
DATA = reverse("admin:django_outbox_live_data")


class Known:
    """A watch that knows who leads."""

    def __init__(self, alias: str) -> None:
        """Ask nobody."""

    def state(self) -> dict[str, Any]:
        return {"leader": "one", "reason": ""}


@pytest.fixture(autouse=True)
def _unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reading of another test, and no thread that asks Kafka."""
    monkeypatch.setattr(live_page, "_readings", {})
    monkeypatch.setattr(live_page, "_watch", Known)


def test_the_page_is_for_those_with_its_permission() -> None:
    others = staff("view_outboxrecord", "view_parkedrecord", "view_payload")
    for url in (PAGE, DATA):
        assert others.get(url).status_code == 403
        assert "login" in Client().get(url)["Location"]
    client = staff("view_live")
    assert DATA in client.get(PAGE).content.decode()
    answer = client.get(DATA)
    assert "no-store" in answer["Cache-Control"]
    assert answer.json()["leader"] == {"leader": "one", "reason": ""}


def test_the_way_to_the_page_is_shown_to_them_only() -> None:
    index = reverse("admin:app_list", args=["django_outbox"])
    for url in (index, reverse("admin:django_outbox_outboxrecord_changelist")):
        with_it = staff("view_outboxrecord", "view_live").get(url)
        assert PAGE in with_it.content.decode()
        without = staff("view_outboxrecord").get(url)
        assert PAGE not in without.content.decode()


def test_keys_are_for_those_who_may_see_payloads() -> None:
    OutboxRecord.objects.create(**MESSAGE)
    plain = staff("view_live").get(DATA)
    assert "secret" not in plain.content.decode()
    assert "keys" not in plain.json()
    (key,) = staff("view_live", "view_payload").get(DATA).json()["keys"]
    assert "secret" in key["kafka_key"]
    # A reading is shared, but never with those who may see less.
    assert "secret" not in staff("view_live").get(DATA).content.decode()


def test_people_who_look_at_the_same_time_share_a_reading() -> None:
    clients = [staff("view_live") for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        for client in clients:
            assert client.get(DATA).status_code == 200
    counted = [q for q in queries if "counters" in q["sql"]]
    assert len(counted) == 1
    log = [q for q in queries if '"django_admin_log"' in q["sql"]]
    assert len(log) == 2


def test_what_people_did_is_among_the_events() -> None:
    parked = ParkedRecord.objects.create(id=7, **MESSAGE)
    user = User.objects.create(username="ada")
    note(type("Request", (), {"user": user})(), [parked], CHANGE, "Parked")
    LogEntry.objects.log_actions(str(user.pk), [user], CHANGE, "unrelated")
    events = staff("view_live").get(DATA).json()["events"]
    assert [event["text"] for event in events] == [
        f"ada: {parked}: Parked",
        "Record 7 to orders was parked after 3 attempts: <b>MSG_SIZE_TOO_LARGE</b>",
    ]


def test_only_the_newest_entries_of_the_admin_log_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parked = ParkedRecord.objects.create(id=7, **MESSAGE)
    user = User.objects.create(username="ada")
    note(type("Request", (), {"user": user})(), [parked], CHANGE, "Parked")
    LogEntry.objects.log_actions(str(user.pk), [user], CHANGE, "unrelated")
    for searched, found in ((1, 0), (2, 1)):
        monkeypatch.setattr(live_page, "MAX_NOTES", searched)
        monkeypatch.setattr(live_page, "_readings", {})
        events = staff("view_live").get(DATA).json()["events"]
        assert [event["kind"] for event in events].count("admin") == found


def lock_outbox() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")


def limits() -> tuple[Any, ...]:
    """Return for how long the connection waits for locks and statements."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('lock_timeout'),"
            " current_setting('statement_timeout')"
        )
        return tuple(cursor.fetchone())


@pytest.mark.django_db(transaction=True)
def test_a_locked_outbox_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "RETRY_AFTER", 3600.0)
    client, usual = staff("view_live"), limits()
    with begun() as other:
        other.do(lock_outbox)
        answer = client.get(DATA)
        assert answer.status_code == 503
        assert answer.json() == {"error": "The database does not answer in time."}
        with CaptureQueriesContext(connection) as queries:
            assert client.get(DATA).status_code == 503
        assert not [q for q in queries if "-- outbox" in q["sql"]]
        other.roll_back()
    monkeypatch.setattr(live_page, "RETRY_AFTER", 0.0)
    assert client.get(DATA).status_code == 200
    assert limits() == usual


def test_a_reading_that_takes_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "LONGEST_READING", -1.0)
    assert staff("view_live").get(DATA).status_code == 503
    assert OutboxRecord.objects.count() == 0


class FakeWatch:
    """A `LeaderWatch` that needs no broker."""

    def __init__(self, alias: str) -> None:
        self.is_closed = False
        watches.append(self)

    def state(self) -> dict[str, Any]:
        return {"leader": f"leader-{len(watches)}", "reason": ""}

    def close(self) -> None:
        self.is_closed = True


watches: list[FakeWatch] = []


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    watches.clear()
    monkeypatch.setattr(leader, "LeaderWatch", FakeWatch)
    monkeypatch.setattr(leader, "WATCH_INTERVAL", 0.01)
    yield
    monkeypatch.setattr(leader, "IDLE_LIMIT", 0.0)
    eventually(lambda: all(watch.is_closed for watch in watches))


@pytest.mark.usefixtures("_watched")
def test_a_watch_answers_at_once_and_ends_when_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background = leader.BackgroundWatch("default")
    assert background.state() == {"leader": None, "reason": "listening"}
    eventually(lambda: background.state()["leader"] == "leader-1")
    monkeypatch.setattr(leader, "IDLE_LIMIT", 0.05)
    eventually(lambda: watches[0].is_closed, interval=0.01)
    monkeypatch.setattr(leader, "IDLE_LIMIT", 60.0)
    eventually(lambda: background.state()["leader"] == "leader-2")


def test_without_a_broker_the_page_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(alias: str) -> None:
        raise ConfigurationError("no address")

    monkeypatch.setattr(leader, "LeaderWatch", refuse)
    state = leader.BackgroundWatch("default").state()
    assert state == {"leader": None, "reason": "no address"}
