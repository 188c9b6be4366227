"""The admin pages: who sees what, and what can be done there."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from django_outbox import open_series, stash_delayed
from django_outbox.models import OutboxRecord, ParkedRecord, Series, StagedRecord

pytestmark = pytest.mark.django_db

SECRET = "<script>alert('secret')</script>"
MESSAGE = {
    "kafka_topic": "orders",
    "kafka_key": SECRET,
    "kafka_value": SECRET,
    "kafka_header_keys": [SECRET],
    "kafka_header_values": [SECRET],
    "attempts": 3,
    "last_error": "<b>MSG_SIZE_TOO_LARGE</b>",
}
CHANGELISTS = [
    reverse("admin:django_outbox_outboxrecord_changelist"),
    reverse("admin:django_outbox_parkedrecord_changelist"),
    reverse("admin:django_outbox_stagedrecord_changelist"),
    reverse("admin:django_outbox_series_changelist"),
]
VIEW = (
    *("view_outboxrecord", "view_parkedrecord"),
    *("view_stagedrecord", "view_series"),
)


def staff(*permissions: str) -> Client:
    """Log somebody in who has these permissions only."""
    user = User.objects.create(username=str(uuid.uuid4()), is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def parked(number: int = 7) -> ParkedRecord:
    """Park a record with this id."""
    record: ParkedRecord = ParkedRecord.objects.create(id=number, **MESSAGE)
    return record


def staged_in(series: str) -> StagedRecord:
    """Stage a message in a series."""
    with open_series(series) as opened:
        opened.stash("orders", key=SECRET, value=SECRET, headers={SECRET: SECRET})
    return StagedRecord.objects.get(series__name=series)


def pages() -> list[str]:
    """Return the list and the page of one record of each kind."""
    outbox = OutboxRecord.objects.create(**MESSAGE)
    staged = staged_in("order-17")
    return [
        *CHANGELISTS,
        reverse("admin:django_outbox_outboxrecord_change", args=[outbox.pk]),
        reverse("admin:django_outbox_parkedrecord_change", args=[parked().pk]),
        reverse("admin:django_outbox_stagedrecord_change", args=[staged.pk]),
    ]


def release(client: Client, *records: ParkedRecord, **extra: Any) -> Any:
    """Choose records on the list and release them."""
    return client.post(
        CHANGELISTS[1],
        {"action": "release", "_selected_action": [r.pk for r in records]},
        follow=True,
        **extra,
    )


def test_the_payload_is_hidden_from_whoever_may_only_view() -> None:
    client = staff(*VIEW)
    for url in pages():
        response = client.get(url)
        assert response.status_code == 200
        assert "secret" not in response.content.decode()
        assert "order" in response.content.decode()


def test_the_payload_is_shown_escaped_to_whoever_may_see_it() -> None:
    client = staff(*VIEW, "view_payload")
    for url in pages()[len(CHANGELISTS) :]:
        content = client.get(url).content.decode()
        assert content.count("&lt;script&gt;alert(&#x27;secret&#x27;)") >= 4
        assert SECRET not in content
        assert "<b>MSG" not in content


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"kafka_value": None}, "(tombstone)"),
        ({"kafka_value": None, "kafka_value_bytes": b"\x00\xff"}, "00 ff"),
        ({"kafka_value": "x" * 5000}, "x" * 2000),
    ],
)
def test_every_kind_of_value_can_be_shown(values: dict[str, Any], shown: str) -> None:
    record = ParkedRecord.objects.create(id=1, **(MESSAGE | values))
    url = reverse("admin:django_outbox_parkedrecord_change", args=[record.pk])
    content = staff("view_parkedrecord", "view_payload").get(url).content.decode()
    assert shown in content
    assert "x" * 2001 not in content


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        *(("infinity", ""), ("-infinity", ""), ("0044-03-15 12:00+00 BC", "")),
        *(("0001-01-01 00:00+00", ""), ("0001-01-02 00:00+00", "Jan. ")),
        *(("9999-12-31 00:00+00", "Dec. 3"), ("9999-12-31 23:59+00", "")),
        ("10000-01-01 00:00+00", ""),
    ],
)
def test_a_time_that_python_cannot_hold_is_shown_as_none(
    moment: str, shown: str, zone: str, settings: Settings
) -> None:
    settings.TIME_ZONE = zone
    client, urls = staff(*VIEW), pages()
    with connection.cursor() as cursor:
        for table in ("outbox", "outbox_parked", "outbox_staged"):
            cursor.execute(f"UPDATE {table} SET create_time = %s", [moment])
    for url in urls:
        response = client.get(url)
        assert response.status_code == 200
        if url == CHANGELISTS[0]:
            cell = f'class="field-create_time nowrap">{shown or "-</td>"}'
            assert cell in response.content.decode()


def test_a_date_at_the_end_of_the_years_is_shown_as_none(settings: Settings) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    client, urls = staff(*VIEW), pages()
    last = datetime.max.replace(tzinfo=UTC)
    delayed = stash_delayed("orders", key="1", value="a", not_before=last)
    record = StagedRecord.objects.get(message_id=delayed)
    Series.objects.update(expires_at=last, closed_at=last)
    for row in (record, Series.objects.get()):
        name = f"admin:django_outbox_{row._meta.model_name}_change"
        urls.append(reverse(name, args=[row.pk]))
    assert {client.get(url).status_code for url in urls} == {200}


def _urls_of(field: str) -> list[str]:
    return [field, *(f"{field}__{lookup}" for lookup in LOOKUPS)]


LOOKUPS = (
    *("startswith", "istartswith", "contains", "icontains", "endswith", "iendswith"),
    *("regex", "iregex", "exact", "iexact", "in", "gt", "gte", "lt", "lte", "range"),
    *("isnull", "len", "overlap", "contained_by", "0", "0__startswith", "0_1", "gibb"),
)
HIDDEN = (
    *("kafka_key", "kafka_value", "kafka_value_bytes"),
    *("kafka_header_keys", "kafka_header_values"),
)


@pytest.mark.parametrize("url", CHANGELISTS)
def test_a_filter_does_not_spell_the_payload_out(url: str) -> None:
    """Each guess of a letter would be answered by the number of rows."""
    staged_in("order-17")
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    client = staff(*VIEW)
    paths = ("{}", "records__{}", "series__records__{}")
    for path in paths:
        for hidden in HIDDEN:
            for lookup in _urls_of(path.format(hidden)):
                response = client.get(url, {lookup: "<"})
                assert response.status_code == 400, lookup


@pytest.mark.parametrize("url", CHANGELISTS)
def test_the_other_ways_into_a_list_ignore_the_payload(url: str) -> None:
    staged_in("order-17")
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    client = staff(*VIEW)
    plain = _result_count(client.get(url))
    for column in (*HIDDEN, "-kafka_value", "1.kafka_value", "99", "-99"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(url, {"o": column}).status_code in {200, 302}
        ordered = [q["sql"].partition("ORDER BY")[2] for q in queries]
        assert not any(hidden in sql for sql in ordered for hidden in HIDDEN)
    if url != CHANGELISTS[3]:
        for q in (SECRET, "secret", "zzzz"):
            assert _result_count(client.get(url, {"q": q})) == 0
        assert _result_count(client.get(url, {"q": "orders"})) == plain
    assert client.get(url, {"_to_field": "kafka_value"}).status_code == 400


@pytest.mark.parametrize("url", CHANGELISTS[:3])
def test_a_record_is_not_found_by_its_payload(url: str) -> None:
    staged_in("order-17")
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    page = url + quote(SECRET) + "/change/"
    response = staff(*VIEW).get(page, {"_to_field": "kafka_key"})
    assert response.status_code == 400


def test_no_registered_page_is_forgotten_here() -> None:
    ours = [m for m in site._registry if m._meta.app_label == "django_outbox"]
    names = [f"admin:django_outbox_{m._meta.model_name}_changelist" for m in ours]
    assert sorted(map(reverse, names)) == sorted(CHANGELISTS)


@pytest.mark.parametrize("url", CHANGELISTS[:3])
def test_with_view_payload_a_filter_may_use_the_payload(url: str) -> None:
    staged_in("order-17")
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    client = staff(*VIEW, "view_payload")
    for value, found in (("<", 1), ("y", 0)):
        response = client.get(url, {"kafka_key__startswith": value})
        assert _result_count(response) == found


def test_what_is_shown_can_be_filtered_by() -> None:
    parked()
    client = staff(*VIEW)
    for value, found in (("orders", 1), ("others", 0)):
        response = client.get(CHANGELISTS[1], {"kafka_topic": value})
        assert _result_count(response) == found
    assert client.get(CHANGELISTS[3], {"state__exact": "open"}).status_code == 200


def _result_count(response: Any) -> int:
    assert response.status_code == 200
    return int(response.context["cl"].result_count)


def test_a_parked_record_has_one_id_in_url_list_and_command() -> None:
    """The row's id in the outbox is another, and not unique."""
    client = staff("view_parkedrecord", "release_parkedrecord")
    first, second = parked(4_000), parked(4_000)
    content = client.get(CHANGELISTS[1]).content.decode()
    for record in (first, second):
        page = reverse(
            "admin:django_outbox_parkedrecord_change", args=[record.parked_id]
        )
        assert f'<a href="{page}">{record.parked_id}</a>' in content
        assert str(record) == f"{record.parked_id} → orders"
    call_command("outbox", "release", str(second.parked_id))
    assert ParkedRecord.objects.get() == first


def test_the_lists_never_count_the_whole_table() -> None:
    parked()
    OutboxRecord.objects.create(**MESSAGE)
    client = staff(*VIEW)
    for url in CHANGELISTS:
        with CaptureQueriesContext(connection) as queries:
            client.get(url)
        counts = [q["sql"] for q in queries if "COUNT(" in q["sql"]]
        assert counts
        assert all("LIMIT 10000" in sql for sql in counts)


@pytest.mark.parametrize("url", CHANGELISTS)
def test_the_lists_have_the_order_of_their_index(url: str) -> None:
    """Sorting by another column would read the whole table."""
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    client = staff(*VIEW)
    statements: list[list[str]] = []
    for order in ({}, {"o": "3"}):
        with CaptureQueriesContext(connection) as queries:
            response = client.get(url, order)
        assert "sortable" not in response.content.decode()
        asked = [query["sql"] for query in queries]
        statements.append([sql for sql in asked if "django_session" not in sql])
    assert statements[0] == statements[1]


@pytest.mark.parametrize("url", CHANGELISTS)
def test_the_lists_read_no_values(url: str) -> None:
    """A message may have a megabyte, a list has fifty of them, an action thousands."""
    staged_in("order-17")
    OutboxRecord.objects.create(**MESSAGE)
    parked()
    client = staff(*VIEW, "view_payload")
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    assert not any("kafka_value" in q["sql"] for q in queries)


@pytest.mark.parametrize("url", CHANGELISTS)
def test_nothing_can_be_added(url: str, admin_client: Client) -> None:
    assert admin_client.get(f"{url}add/").status_code == 403


def test_nothing_can_be_changed_and_what_waits_not_deleted(
    admin_client: Client,
) -> None:
    outbox = OutboxRecord.objects.create(**MESSAGE)
    url = reverse("admin:django_outbox_outboxrecord_change", args=[outbox.pk])
    assert admin_client.post(url, {"kafka_topic": "x"}).status_code == 403
    url = reverse("admin:django_outbox_outboxrecord_delete", args=[outbox.pk])
    assert admin_client.post(url, {"post": "yes"}).status_code == 403
    outbox.refresh_from_db()
    assert outbox.kafka_topic == "orders"


def test_a_release_puts_records_back_and_leaves_a_note() -> None:
    client = staff("view_parkedrecord", "release_parkedrecord")
    response = release(client, parked(1), parked(2))
    shown = response.content.decode()
    assert "Put back into the outbox: 2 of 2 records." in shown
    assert OutboxRecord.objects.count() == 2
    notes = LogEntry.objects.all()
    assert len(notes) == 2
    assert "secret" not in str([(n.object_repr, n.change_message) for n in notes])


def test_a_release_by_two_people_is_done_once() -> None:
    record = parked()
    client = staff("view_parkedrecord", "release_parkedrecord")
    release(client, record)
    release(client, record)
    assert OutboxRecord.objects.count() == 1


def test_a_release_needs_its_own_permission() -> None:
    record = parked()
    release(staff("view_parkedrecord", "skip_parkedrecord"), record)
    assert not OutboxRecord.objects.exists()


def test_a_release_needs_the_forms_token() -> None:
    client = staff("view_parkedrecord", "release_parkedrecord")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert release(strict, parked()).status_code == 403
    assert not OutboxRecord.objects.exists()


def test_a_parked_record_is_dropped_by_its_action_only(admin_client: Client) -> None:
    url = reverse("admin:django_outbox_parkedrecord_delete", args=[parked().pk])
    assert admin_client.post(url, {"post": "yes"}).status_code == 403
    assert ParkedRecord.objects.exists()


def close(client: Client, action: str, *names: str, confirmed: str = "yes") -> str:
    """Choose series on the list and close them."""
    chosen = Series.objects.filter(name__in=names).values_list("pk", flat=True)
    form = {"action": action, "_selected_action": chosen, "confirmed": confirmed}
    response = client.post(CHANGELISTS[3], form, follow=True)
    return response.content.decode()


def test_series_are_released_and_discarded_and_a_note_is_left() -> None:
    client = staff("view_series", "release_series", "discard_series")
    for name in ("one", "two", "three"):
        staged_in(name)
    assert "Released: one" in close(client, "release", "one", "two")
    assert "Discarded: three" in close(client, "discard", "three")
    assert (OutboxRecord.objects.count(), StagedRecord.objects.count()) == (2, 0)
    assert LogEntry.objects.count() == 3
    assert "&#x27;one&#x27; was released at" in close(client, "discard", "one")
    assert LogEntry.objects.count() == 3


def test_to_discard_a_series_asks_first() -> None:
    client = staff("view_series", "discard_series")
    staged_in("one")
    page = close(client, "discard", "one", confirmed="")
    assert "Series one, open, 1 messages" in page
    assert "they are lost" in page
    assert 'name="confirmed" value="yes"' in page
    assert StagedRecord.objects.count() == 1
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize("action", ["release", "discard"])
def test_each_needs_its_own_permission(action: str) -> None:
    other = {"release": "discard", "discard": "release"}[action]
    staged_in("one")
    close(staff("view_series", f"{other}_series"), action, "one")
    assert Series.objects.get().state == "open"


@pytest.mark.parametrize("model", ["stagedrecord", "series"])
def test_what_is_staged_can_be_neither_changed_nor_deleted(
    model: str, admin_client: Client
) -> None:
    record = staged_in("one")
    pk = record.pk if model == "stagedrecord" else record.series_id
    for page in ("change", "delete"):
        url = reverse(f"admin:django_outbox_{model}_{page}", args=[pk])
        assert admin_client.post(url, {"post": "yes"}).status_code == 403
    assert (
        admin_client.get(
            reverse(f"admin:django_outbox_{model}_change", args=[pk])
        ).status_code
        == 200
    )


@pytest.mark.django_db(databases=["default", "other"])
def test_the_pages_are_of_the_database_of_the_setting(
    admin_client: Client, settings: Settings
) -> None:
    settings.DJANGO_OUTBOX = settings.DJANGO_OUTBOX | {"DATABASE": "other"}
    unused = 1_000_000  # the sequence of the ids does not come to it
    record = ParkedRecord.objects.using("other").create(id=unused, **MESSAGE)
    with transaction.atomic("other"):
        open_series("order-18").stash("orders", key="1", value=None)
    series = Series.objects.using("other").get()

    assert b"1 parked record" in admin_client.get(CHANGELISTS[1]).content
    release(admin_client, record)
    release_of = {"action": "release", "_selected_action": [series.pk]}
    admin_client.post(CHANGELISTS[3], release_of)

    assert OutboxRecord.objects.using("other").count() == 2
    assert not ParkedRecord.objects.using("other").exists()
    assert LogEntry.objects.count() == 2
    page = reverse("admin:django_outbox_outboxrecord_change", args=[unused])
    assert admin_client.get(page).status_code == 200
