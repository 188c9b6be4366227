"""What can be done to records in the admin: by whom, and what is noted."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from django_outbox.admin import bounded_pages, record_actions
from django_outbox.models import ArchivedRecord, OutboxRecord, ParkedRecord

from .test_admin import CHANGELISTS, MESSAGE, staff

pytestmark = pytest.mark.django_db

WAITING, PARKED = CHANGELISTS[:2]
VIEW = ("view_outboxrecord", "view_parkedrecord")


def waiting(number: int, *, attempts: int = 3) -> OutboxRecord:
    values = MESSAGE | {"attempts": attempts}
    record: OutboxRecord = OutboxRecord.objects.create(id=number, **values)
    return record


def parked(number: int) -> ParkedRecord:
    record: ParkedRecord = ParkedRecord.objects.create(id=number, **MESSAGE)
    return record


def act(client: Client, url: str, action: str, *records: Any, **extra: str) -> str:
    """Choose records and an action on a list; return the page that follows."""
    chosen = {"action": action, "_selected_action": [record.pk for record in records]}
    response = client.post(url, chosen | extra, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def notes() -> list[tuple[str, int, str]]:
    found = LogEntry.objects.order_by("object_id")
    return [(n.object_id or "", n.action_flag, n.change_message) for n in found]


def test_blocked_records_are_parked_and_each_has_a_note() -> None:
    client = staff(*VIEW, "park_outboxrecord")
    page = act(client, WAITING, "park", waiting(1), waiting(2), waiting(3, attempts=0))
    assert "Parked: 2 of 3 records." in page
    assert "not as they were on the page" in page
    assert set(ParkedRecord.objects.values_list("id", flat=True)) == {1, 2}
    assert notes() == [("1", CHANGE, "Parked"), ("2", CHANGE, "Parked")]


@pytest.mark.parametrize(
    ("url", "action", "make"),
    [(WAITING, "skip", waiting), (PARKED, "skip_parked", parked)],
)
def test_dropping_asks_first(url: str, action: str, make: Any) -> None:
    client = staff(*VIEW, "skip_outboxrecord", "skip_parkedrecord")
    record, other = make(1), make(2)
    page = act(client, url, action, record)
    assert "it is lost" in page
    assert "Record 1 to orders, 3 attempts" in page
    assert "secret" not in page
    assert "<b>MSG" not in page
    assert notes() == []
    assert type(record).objects.count() == 2

    page = act(client, url, action, record, confirmed="yes")
    assert "Dropped: 1 of 1 record." in page
    assert list(type(record).objects.all()) == [other]
    assert notes() == [(str(record.pk), DELETION, "Dropped")]


def test_all_that_match_are_not_more_than_the_page_has_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_pages, "COUNT_CAP", 1)
    client = staff(*VIEW, "release_parkedrecord")
    first, _ = parked(1), parked(2)
    page = act(client, PARKED, "release", first, select_across="1")
    assert "Choose at most 1 of them." in page
    assert ParkedRecord.objects.count() == 2
    assert notes() == []


def test_as_many_as_may_be_dropped_fit_into_the_form() -> None:
    client = staff(*VIEW, "skip_outboxrecord")
    records = [waiting(n + 1) for n in range(record_actions.MAX_DROPPED)]
    page = act(client, WAITING, "skip", *records)
    assert page.count('name="_selected_action"') == len(records)
    act(client, WAITING, "skip", *records, confirmed="yes", csrfmiddlewaretoken="t")
    assert not OutboxRecord.objects.exists()


@pytest.mark.parametrize(
    ("url", "action", "permission"),
    [
        (WAITING, "park", "park_outboxrecord"),
        (WAITING, "skip", "skip_outboxrecord"),
        (PARKED, "release", "release_parkedrecord"),
        (PARKED, "skip_parked", "skip_parkedrecord"),
    ],
)
def test_each_action_has_a_permission_of_its_own(
    url: str, action: str, permission: str
) -> None:
    record: Any = waiting(1) if url == WAITING else parked(1)
    every = {
        *("park_outboxrecord", "skip_outboxrecord", "replay_archivedrecord"),
        *("release_parkedrecord", "skip_parkedrecord", "view_live", "view_payload"),
    }
    all_but_one = staff(*VIEW, *(every - {permission}))
    act(all_but_one, url, action, record, confirmed="yes")
    assert type(record).objects.filter(pk=record.pk).exists()
    act(staff(*VIEW, permission), url, action, record, confirmed="yes")
    assert not type(record).objects.filter(pk=record.pk).exists()


class ReadsFromReplica:
    """Reads the outbox from a replica that lags, which is another database here."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "django_outbox" else None

    def db_for_write(self, model: Any, **hints: Any) -> None:
        """Leave writes where they are."""


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize(
    ("url", "action", "make", "note"),
    [
        (WAITING, "park", waiting, (CHANGE, "Parked")),
        (PARKED, "skip_parked", parked, (DELETION, "Dropped")),
    ],
)
def test_a_note_does_not_wait_for_a_replica(
    url: str, action: str, make: Any, note: Any, settings: Settings
) -> None:
    client = staff(*VIEW, "park_outboxrecord", "skip_parkedrecord")
    record = make(1)
    record.save(using="other", force_insert=True)
    settings.DATABASE_ROUTERS = [ReadsFromReplica()]
    page = act(client, url, action, record, confirmed="yes")
    assert ": 1 of 1 record." in page
    assert notes() == [(str(record.pk), *note)]


@pytest.mark.django_db(databases=["default", "other"])
def test_what_only_a_replica_still_has_was_not_changed(settings: Settings) -> None:
    """A leader has sent it meanwhile."""
    client = staff(*VIEW, "skip_parkedrecord")
    record = parked(1)
    record.save(using="other", force_insert=True)
    ParkedRecord.objects.using("default").all().delete()
    settings.DATABASE_ROUTERS = [ReadsFromReplica()]
    page = act(client, PARKED, "skip_parked", record, confirmed="yes")
    assert "Dropped: 0 of 1 record." in page
    assert notes() == []


@pytest.mark.parametrize("moment", ["infinity", "-infinity"])
def test_records_without_a_finite_time_can_be_dealt_with(moment: str) -> None:
    rights = ("park_outboxrecord", "skip_outboxrecord", "release_parkedrecord")
    client = staff(*VIEW, *rights)
    records = [waiting(1), waiting(2)]

    def count(table: str) -> int:
        with connection.cursor() as cursor:
            found = f"SELECT count(*) FROM {table} WHERE create_time = %s"
            cursor.execute(found, [moment])
            return int(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox SET create_time = %s", [moment])
    assert "Parked: 1 of 1" in act(client, WAITING, "park", records[0])
    assert count("outbox_parked") == count("outbox") == 1
    assert "it is lost" in act(client, WAITING, "skip", records[1])
    assert "Dropped" in act(client, WAITING, "skip", records[1], confirmed="yes")
    act(client, PARKED, "release", ParkedRecord.objects.get())
    # It starts again, with an age.
    assert OutboxRecord.objects.get().create_time is not None
    assert len(notes()) == 3


def test_one_answer_drops_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_actions, "MAX_DROPPED", 1)
    client = staff(*VIEW, "skip_parkedrecord")
    page = act(client, PARKED, "skip_parked", parked(1), parked(2))
    assert "Choose at most 1 of them." in page


def test_the_id_of_the_log_leads_to_the_record_wherever_it_is() -> None:
    client = staff(*VIEW)
    page = reverse("admin:django_outbox_outboxrecord_change", args=[4_007])
    record = waiting(4_007)
    assert "orders" in client.get(page).content.decode()
    record.delete()
    first = parked(4_007)
    where = reverse("admin:django_outbox_parkedrecord_change", args=[first.pk])
    assert client.get(page)["Location"] == where
    parked(4_007)
    assert client.get(page)["Location"] == f"{PARKED}?id=4007"
    listed = client.get(page, follow=True).context["cl"]
    assert listed.result_count == 2
    # Only for those who may see parked records; and no id is a mistake of ours.
    assert client.get(page.replace("4007", "x")).status_code == 302
    response = staff("view_outboxrecord").get(page)
    assert response["Location"] == reverse("admin:index")


def found(client: Client, url: str, **query: str) -> list[int]:
    response = client.get(url, query)
    assert response.status_code == 200, query
    return [record.id for record in response.context["cl"].result_list]


def test_records_are_filtered_and_found_by_ids_and_topics() -> None:
    first, second = waiting(1), waiting(2, attempts=0)
    OutboxRecord.objects.create(id=3, kafka_topic="invoices", kafka_key="customer")
    client = staff(*VIEW)
    assert found(client, WAITING, state="blocked") == [1]
    assert found(client, WAITING, state="untried") == [2, 3]
    assert found(client, WAITING, topic="invoices") == [3]
    assert found(client, WAITING, q="2") == [2]
    assert found(client, WAITING, q=str(first.message_id or "")) in ([1], [1, 2, 3])
    second.refresh_from_db()
    assert found(client, WAITING, q=str(second.message_id)) == [2]
    assert found(client, WAITING, q=" invoices ") == [3]
    assert found(client, WAITING, q="customer") == []
    assert found(client, WAITING, q=str(uuid.uuid4())) == []
    for digits in (19, 30, 5_000):
        assert found(client, WAITING, q="9" * digits) == []
    assert found(staff(*VIEW, "view_payload"), WAITING, q="customer") == [3]
    parked(70)
    (row,) = ParkedRecord.objects.all()
    assert found(client, PARKED, q="70") == found(client, PARKED, q=str(row.pk)) == [70]


def test_the_choices_of_a_filter_come_from_a_bounded_number_of_rows() -> None:
    # More than a page: a shorter list is read at once after it was counted.
    for number in range(51):
        waiting(number)
    client = staff(*VIEW)
    for query in ({}, {"topic": "orders"}, {"state": "blocked"}, {"_facets": "True"}):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(WAITING, query).status_code == 200
        reads = [q["sql"] for q in queries if 'FROM "outbox"' in q["sql"]]
        assert len(reads) >= 3
        assert all("LIMIT" in sql for sql in reads), reads


def archived(number: int, topic: str = "orders", *, minutes: int = 10) -> None:
    values = MESSAGE | {"kafka_topic": topic}
    ArchivedRecord.objects.create(
        id=number, archived_at=Now() - timedelta(minutes=minutes), **values
    )


REPLAY = reverse("admin:django_outbox_replay")


def period(**more: str) -> dict[str, str]:
    now = timezone.localtime()
    since, until = now - timedelta(hours=1), now + timedelta(minutes=1)
    times = {"since": f"{since:%Y-%m-%dT%H:%M:%S}", "until": f"{until:%Y-%m-%dT%H:%M}"}
    return times | more


def test_archived_records_are_shown_before_they_are_sent_again() -> None:
    archived(7)
    archived(8, "invoices")
    archived(9, minutes=90)
    client = staff(*VIEW, "replay_archivedrecord")
    assert REPLAY in client.get(WAITING).content.decode()
    assert "Find" in client.get(REPLAY).content.decode()
    page = client.get(REPLAY, period(topic="orders")).content.decode()
    assert "Send 1 record again" in page
    assert "<td>7</td>" in page
    assert "secret" not in page
    assert not OutboxRecord.objects.exists()

    response = client.post(REPLAY, period(topic="orders"), follow=True)
    assert "1 record is in the outbox again." in response.content.decode()
    assert OutboxRecord.objects.get().kafka_topic == "orders"
    assert notes() == [("7", ADDITION, "Sent again")]
    assert LogEntry.objects.get().object_repr == "7 → orders"


def test_a_wrong_period_is_refused() -> None:
    client = staff("replay_archivedrecord")
    values = {"since": "2026-11-24T10:00", "until": "2026-11-24T09:00"}
    for response in (client.get(REPLAY, values), client.post(REPLAY, values)):
        assert "ends before it begins" in response.content.decode()
    assert client.get(REPLAY, {"since": "x"}).status_code == 200


def test_only_those_who_may_send_again() -> None:
    archived(7)
    client = staff(*VIEW, "view_payload", "release_parkedrecord")
    assert REPLAY not in client.get(WAITING).content.decode()
    assert client.get(REPLAY).status_code == 403
    assert client.post(REPLAY, period()).status_code == 403
    assert not OutboxRecord.objects.exists()
