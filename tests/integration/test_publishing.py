"""Models that publish, on a real PostgreSQL: each change has its message, or fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import F, Value
from django.db.models.functions import Upper
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from django_outbox import InvalidMessage, NotInTransaction
from django_outbox.contrib.publishing import UnpublishedChange, unpublished
from django_outbox.models import OutboxRecord
from tests.testapp.published import (
    Arrival,
    Badge,
    Bar,
    Contract,
    Departure,
    Lease,
    Line,
    LongLease,
    Owner,
    Paper,
    Place,
    Restaurant,
    Ticket,
    UrgentTicket,
)

PATIENCE = 10.0


def published(*, using: str = "default") -> list[tuple[str, str, str]]:
    """Topic, key and event of every message, in order."""
    rows = OutboxRecord.objects.using(using).order_by("id")
    return [
        (row.kafka_topic, row.kafka_key, dict(headers(row)).get("event", "-"))
        for row in rows
    ]


def headers(row: OutboxRecord) -> list[tuple[str, str]]:
    return [*zip(row.kafka_header_keys, row.kafka_header_values, strict=True)]


def values() -> list[str | None]:
    rows = OutboxRecord.objects.order_by("id")
    return list(rows.values_list("kafka_value", flat=True))


def named(name: str) -> Any:
    return Owner.objects.create(name=name)


def silent(model: type[Any], **fields: Any) -> Any:
    """A row that was created without a message."""
    with unpublished(model):
        return model.objects.create(**fields)


@pytest.mark.django_db
def test_each_change_has_a_message_with_the_whole_row() -> None:
    ticket = Ticket.objects.create(number="a", price=Decimal("1.50"))
    pk = ticket.pk
    ticket.number = "b"
    ticket.save()
    ticket.delete()
    key = str(pk)
    assert published() == [
        ("tickets", key, "create"),
        ("tickets", key, "update"),
        ("tickets", key, "delete"),
    ]
    assert values() == [
        f'{{"pk":{pk},"id":{pk},"number":"a","price":"1.50","owner_id":null}}',
        f'{{"pk":{pk},"id":{pk},"number":"b","price":"1.50","owner_id":null}}',
        None,
    ]


@pytest.mark.django_db
def test_fields_and_functions_make_the_message() -> None:
    ticket = silent(Ticket, number="a")
    line = Line.objects.create(ticket=ticket, text="abc")
    (row,) = OutboxRecord.objects.all()
    assert (row.kafka_topic, row.kafka_key) == ("lines.abc", str(ticket.pk))
    assert row.kafka_value == (f'{{"pk":{line.pk},"text":"abc","ticket":{ticket.pk}}}')
    assert headers(row) == [("length", "3"), ("kind", "create")]


@pytest.mark.django_db
def test_files_are_their_names_and_bytes_are_base64() -> None:
    paper = Paper.objects.create(file="a/b.pdf", raw=b"\x00\xff")
    Paper.objects.create(raw=None)
    assert values() == [
        f'{{"pk":{paper.pk},"id":{paper.pk},"file":"a/b.pdf","raw":"AP8=",'
        '"size":1,"double":2}',
        f'{{"pk":{paper.pk + 1},"id":{paper.pk + 1},"file":"","raw":null,'
        '"size":1,"double":2}',
    ]


@pytest.mark.django_db
def test_a_column_that_the_database_computes_is_up_to_date() -> None:
    paper = silent(Paper)
    paper.size = 5
    paper.save()
    (value,) = values()
    assert value is not None
    assert value.endswith('"size":5,"double":10}')


@pytest.mark.django_db
def test_only_some_fields_are_saved_and_the_message_has_what_the_row_has() -> None:
    ticket = silent(Ticket, number="a", price=1)
    with unpublished(Ticket):
        Ticket.objects.update(price=2)
    ticket.number = "not saved"
    ticket.owner = Owner.objects.create(name="ada")
    ticket.save(update_fields=["owner"])
    (value,) = values()
    assert value is not None
    assert '"number":"a","price":"2.00"' in value
    assert ticket.number == "not saved"


@pytest.mark.django_db
def test_an_expression_is_published_as_what_it_became() -> None:
    ticket = silent(Ticket, number="a", price=1)
    ticket.price = F("price") + 1
    ticket.save()
    Ticket.objects.bulk_create([Ticket(number=Upper(Value("b")), price=3)])
    first, second = values()
    assert first is not None
    assert second is not None
    assert '"price":"2.00"' in first
    assert '"number":"B"' in second


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_new", [True, False])
def test_outside_of_a_transaction_nothing_is_saved(is_new: bool) -> None:
    ticket = Ticket(number="a") if is_new else silent(Ticket, number="a")
    ticket.price = Decimal(7)
    with pytest.raises(NotInTransaction, match=r"Ticket\.save\(\).*unpublished"):
        ticket.save()
    assert not Ticket.objects.filter(price=7).exists()
    assert published() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [UrgentTicket, Restaurant, Bar, Contract, LongLease])
def test_an_heir_is_not_saved_outside_of_a_transaction_either(model: Any) -> None:
    with pytest.raises(NotInTransaction, match=rf"{model.__name__}\.save"):
        model().save()
    assert not model.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_bulk_creation_and_deletions_open_a_transaction_themselves() -> None:
    Ticket.objects.bulk_create([Ticket(number="a"), Ticket(number="b")])
    Ticket.objects.get(number="a").delete()
    Ticket.objects.filter(number="b").delete()
    events = [event for _, _, event in published()]
    assert events == ["create", "create", "delete", "delete"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        lambda _: Ticket.objects.bulk_create([Ticket(number="b")]),
        lambda ticket: ticket.delete(),
        lambda _: Ticket.objects.all().delete(),
    ],
)
def test_without_the_message_the_change_of_many_rows_rolls_back(
    change: Callable[[Ticket], object], settings: Settings
) -> None:
    ticket = silent(Ticket, number="a")
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "ALLOWED_TOPICS": ["others"]}
    with pytest.raises(InvalidMessage):
        change(ticket)
    assert list(Ticket.objects.values_list("number", flat=True)) == ["a"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change",
    [
        lambda ticket: ticket.save(),
        lambda _: Ticket.objects.create(number="b"),
        lambda ticket: ticket.delete(),
        lambda _: Ticket.objects.bulk_create([Ticket(number="b")]),
    ],
)
def test_a_caught_error_does_not_commit_the_row_without_its_message(
    change: Callable[[Ticket], object], settings: Settings
) -> None:
    ticket = silent(Ticket, number="a", price=1)
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "ALLOWED_TOPICS": ["others"]}
    ticket.price = 2
    with transaction.atomic():
        Owner.objects.create(name="ada")
        with pytest.raises(InvalidMessage):
            change(ticket)
    assert list(Ticket.objects.values_list("number", "price")) == [("a", 1)]
    assert not Owner.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_the_messages_back() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Ticket.objects.create(number="a").delete()
        Ticket.objects.bulk_create([Ticket(number="b")])
        raise ZeroDivisionError
    assert published() == []
    with transaction.atomic():
        Ticket.objects.create(number="c")
    assert len(published()) == 1


@pytest.mark.django_db
def test_a_savepoint_takes_back_only_its_own_messages() -> None:
    first = Ticket.objects.create(number="a")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Ticket.objects.create(number="b")
        raise ZeroDivisionError
    assert published() == [("tickets", str(first.pk), "create")]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_message_goes_to_the_database_of_the_row() -> None:
    with transaction.atomic(using="other"):
        ticket = Ticket(number="a")
        ticket.save(using="other")
        Ticket.objects.using("other").bulk_create([Ticket(number="b")])
        ticket.price = 5
        ticket.save(update_fields=["price"])
        ticket.delete()
    events = [event for _, _, event in published(using="other")]
    assert events == ["create", "create", "update", "delete"]
    assert published() == []
    rows = OutboxRecord.objects.using("other").order_by("id")
    assert '"price":"5.00"' in str(rows[2].kafka_value)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_transaction_of_another_database_does_not_count() -> None:
    with (
        transaction.atomic(),
        pytest.raises(NotInTransaction, match="database 'other'"),
    ):
        Ticket(number="a").save(using="other")
    assert not Ticket.objects.using("other").exists()


@pytest.mark.django_db
def test_a_bulk_creation_has_a_message_for_each_row_in_order() -> None:
    tickets = Ticket.objects.bulk_create([Ticket(number=str(n)) for n in range(25)])
    assert published() == [("tickets", str(t.pk), "create") for t in tickets]
    assert [f'"number":"{n}"' in str(v) for n, v in enumerate(values())] == [True] * 25
    assert Ticket.objects.bulk_create([]) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.update(price=7),
        lambda rows: rows.bulk_update([*rows], ["price"]),
        lambda rows: rows._raw_delete(rows.db),
        lambda rows: rows.bulk_create([Ticket(number="a")], ignore_conflicts=True),
        lambda rows: rows.bulk_create(
            [Ticket(number="a", price=7)],
            update_conflicts=True,
            unique_fields=["number"],
            update_fields=["price"],
        ),
        lambda _: UrgentTicket.objects.update(price=7),
        lambda rows: rows[0].owner.ticket_set.update(price=7),
        lambda rows: rows[0].owner.ticket_set.clear(),
        lambda rows: named("b").ticket_set.add(*rows),
        lambda _: Ticket._base_manager.update(price=7),
    ],
)
def test_what_would_change_rows_silently_is_refused_and_changes_nothing(
    change: Callable[[Any], object],
) -> None:
    owner = Owner.objects.create(name="a")
    silent(Ticket, number="a", price=1, owner=owner)
    with (
        pytest.raises(UnpublishedChange, match=r"save\(\).*unpublished\("),
        transaction.atomic(),
    ):
        change(Ticket.objects.all())
    assert list(Ticket.objects.values_list("price", "owner")) == [(1, owner.pk)]
    with unpublished(Ticket):
        change(Ticket.objects.all())
    assert published() == []


@pytest.mark.django_db
def test_many_rows_need_keys_that_are_known() -> None:
    """Django does not read back what the database computes for a key."""
    with pytest.raises(UnpublishedChange, match="keys that the database makes"):
        Ticket.objects.bulk_create([Ticket(pk=Value(7) + 1, number="b")])
    assert published() == []


@pytest.mark.django_db
def test_a_refused_bulk_update_asks_the_database_nothing() -> None:
    ticket = silent(Ticket, number="a")
    with (
        CaptureQueriesContext(connections["default"]) as queries,
        pytest.raises(UnpublishedChange, match=r"^bulk_update\(\) would"),
    ):
        Ticket.objects.bulk_update([ticket], ["price"])
    assert len(queries) == 0


class ReadsElsewhere:
    """Sends reads to a replica, which is another database here."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "other"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_bulk_operations_go_to_the_database_for_writes(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [ReadsElsewhere()]
    Ticket.objects.bulk_create([Ticket(number="a"), Ticket(number=Upper(Value("b")))])
    assert len(published()) == Ticket.objects.using("default").count() == 2
    with pytest.raises(UnpublishedChange):
        Ticket.objects.update(price=7)
    assert not Ticket.objects.using("default").filter(price=7).exists()


@pytest.mark.django_db(transaction=True)
def test_a_refused_update_outside_of_a_transaction_rolls_back() -> None:
    silent(Ticket, number="a", price=1)
    with pytest.raises(UnpublishedChange):
        Ticket.objects.update(price=7)
    assert Ticket.objects.get().price == 1


@pytest.mark.django_db
def test_a_deletion_that_would_change_rows_silently_is_refused() -> None:
    ada, bob = Owner.objects.create(name="ada"), Owner.objects.create(name="bob")
    badge = silent(Badge, owner=ada)
    bob.delete()
    with (
        pytest.raises(UnpublishedChange, match="on_delete=SET_NULL"),
        transaction.atomic(),
    ):
        ada.delete()
    badge.refresh_from_db()
    assert badge.owner == ada
    with unpublished(Badge):
        ada.delete()
    assert Badge.objects.get().owner is None


@pytest.mark.django_db
def test_a_deletion_has_a_message_for_each_row_that_goes_with_it() -> None:
    owner = Owner.objects.create(name="a")
    ticket = silent(Ticket, number="a", owner=owner)
    silent(Line, ticket=ticket, text="b")
    Owner.objects.filter(pk=owner.pk).delete()
    rows = OutboxRecord.objects.order_by("id")
    assert sorted(rows.values_list("kafka_topic", "kafka_key", "kafka_value")) == [
        ("lines.b", str(ticket.pk), None),
        ("tickets", str(ticket.pk), None),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "delete",
    [
        lambda _: Line.objects.only("pk").delete(),
        lambda line: Line(pk=line.pk).delete(),
    ],
)
def test_a_tombstone_is_of_the_row_and_not_of_the_object_in_hand(
    delete: Callable[[Line], object],
) -> None:
    ticket = silent(Ticket, number="a")
    delete(silent(Line, ticket=ticket, text="b"))
    rows = OutboxRecord.objects.values_list("kafka_topic", "kafka_key", "kafka_value")
    assert [*rows] == [("lines.b", str(ticket.pk), None)]


@pytest.mark.django_db
def test_who_deletes_what_is_gone_already_publishes_nothing() -> None:
    """The first one to delete the row through the model has published that."""
    line = silent(Line, ticket=silent(Ticket, number="a"), text="b")
    in_hand = [Line(pk=line.pk), Line.objects.only("pk").get()]
    with unpublished(Line):
        Line.objects.all().delete()
    for one in in_hand:
        one.delete()
    assert not OutboxRecord.objects.exists()


@pytest.mark.django_db
def test_a_proxy_publishes_as_its_table_does() -> None:
    ticket = UrgentTicket.objects.create(number="a")
    UrgentTicket.objects.bulk_create([UrgentTicket(number="b")])
    ticket.save()
    UrgentTicket.objects.filter(number="a").delete()
    UrgentTicket.objects.get().delete()
    events = [event for _, _, event in published()]
    assert events == ["create", "create", "update", "delete", "delete"]
    assert {topic for topic, _, _ in published()} == {"tickets"}


@pytest.mark.django_db
def test_a_model_with_a_table_of_its_own_publishes_its_parents_row_too() -> None:
    restaurant = Restaurant.objects.create(name="a", seats=3)
    pk = restaurant.pk
    restaurant.name = "b"
    restaurant.save()
    assert sorted(zip(published(), values(), strict=True)) == sorted(
        (
            (
                ("restaurants", str(pk), event),
                f'{{"pk":{pk},"name":"{name}","seats":3}}',
            )
            if topic == "restaurants"
            else (("places", str(pk), event), f'{{"name":"{name}"}}')
        )
        for event, name in (("create", "a"), ("update", "b"))
        for topic in ("restaurants", "places")
    )


@pytest.mark.django_db
@pytest.mark.parametrize("is_by_parent", [True, False])
def test_each_row_of_a_deleted_object_has_one_tombstone(is_by_parent: bool) -> None:
    row = silent(Restaurant, name="a")
    key = str(row.pk)
    (Place.objects.get() if is_by_parent else row).delete()
    assert sorted(published()) == [
        ("places", key, "delete"),
        ("restaurants", key, "delete"),
    ]


@pytest.mark.django_db
def test_the_parents_row_that_is_kept_has_no_tombstone() -> None:
    row = silent(Restaurant, name="a")
    key = str(row.pk)
    row.delete(keep_parents=True)
    assert published() == [("restaurants", key, "delete")]


@pytest.mark.django_db
def test_an_heir_without_a_declaration_publishes_its_parents_row() -> None:
    bar = Bar.objects.create(name="a", taps=1)
    key = str(bar.pk)
    bar.delete()
    assert published() == [("places", key, "create"), ("places", key, "delete")]


@pytest.mark.django_db
def test_a_declaration_of_an_abstract_model_counts_for_each_table_below_it() -> None:
    contract = Contract.objects.create()
    assert published() == [("audit", str(contract.pk), "-")]
    assert values() == ["Contract"]
    lease = LongLease.objects.create()
    key = str(lease.pk)
    lease.delete()
    assert sorted(published()[1:]) == [
        ("audit", key, "-"),
        ("audit", key, "-"),
        ("leases", key, "create"),
    ]


@pytest.mark.django_db
def test_only_the_chosen_events_are_published_and_others_are_free() -> None:
    arrival = Arrival.objects.create(name="a")
    key = str(arrival.pk)
    arrival.save()
    Arrival.objects.update(name="b")
    Arrival.objects.bulk_update([arrival], ["name"])
    Arrival.objects.all().delete()
    assert published() == [("arrivals", key, "create")]


@pytest.mark.django_db(transaction=True)
def test_a_model_that_publishes_deletions_only_is_saved_without_a_transaction() -> None:
    departure = Departure.objects.create(name="a")
    Departure.objects.bulk_create([Departure(name="b")], ignore_conflicts=True)
    Departure.objects.update(name="c")
    assert published() == []
    key = str(departure.pk)
    departure.delete()
    assert published() == [("departures", key, "delete")]


@pytest.mark.django_db
def test_a_deletion_that_nobody_hears_of_takes_one_statement() -> None:
    """A receiver would make Django load each row."""
    with unpublished(Arrival):
        Arrival.objects.create(name="a")
    with CaptureQueriesContext(connections["default"]) as queries:
        Arrival.objects.all().delete()
    assert len(queries) == 1


@pytest.mark.django_db
def test_blocks_nest_and_end_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), unpublished(Ticket):
        with unpublished(Place):
            Ticket.objects.create(number="a")
            Place.objects.create(name="a")
        Ticket.objects.create(number="b")
        assert published() == []
        Place.objects.create(name="b")
        assert [topic for topic, _, _ in published()] == ["places"]
        raise ZeroDivisionError
    Ticket.objects.create(number="c")
    assert [topic for topic, _, _ in published()] == ["places", "tickets"]


@pytest.mark.django_db
def test_a_block_counts_for_heirs_and_for_all_classes_of_the_table() -> None:
    with unpublished(UrgentTicket, Place, Lease):
        Ticket.objects.create(number="a")
        Restaurant.objects.create(name="a").delete()
        LongLease.objects.create()
    assert published() == []


@pytest.mark.django_db(transaction=True)
def test_another_thread_goes_on_to_publish() -> None:
    inside, done = threading.Event(), threading.Event()

    def keep_silent() -> None:
        try:
            with unpublished(Ticket):
                inside.set()
                assert done.wait(PATIENCE)
                Ticket.objects.create(number="silent")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(keep_silent)
        assert inside.wait(PATIENCE)
        with transaction.atomic():
            ticket = Ticket.objects.create(number="heard")
        done.set()
        other.result(PATIENCE)
    assert published() == [("tickets", str(ticket.pk), "create")]
    assert Ticket.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_another_task_goes_on_to_publish() -> None:
    """Both run on Django's one thread for async code."""

    @sync_to_async
    def heard() -> None:
        with transaction.atomic():
            Ticket.objects.create(number="heard")

    async def both() -> None:
        inside, done = asyncio.Event(), asyncio.Event()

        async def keep_silent() -> None:
            with unpublished(Ticket):
                inside.set()
                await done.wait()
                await Ticket.objects.acreate(number="silent")
                await Ticket.objects.abulk_create([Ticket(number="all")])
                await Ticket.objects.filter(number="all").aupdate(price=3)

        other = asyncio.create_task(keep_silent())
        await inside.wait()
        await heard()
        done.set()
        await other
        with pytest.raises(NotInTransaction):
            await Ticket.objects.acreate(number="refused")
        with pytest.raises(UnpublishedChange):
            await Ticket.objects.aupdate(price=4)
        await sync_to_async(connections.close_all)()

    asyncio.run(both())
    numbers = Ticket.objects.order_by("number").values_list("number", flat=True)
    assert list(numbers) == ["all", "heard", "silent"]
    ticket = Ticket.objects.get(number="heard")
    assert published() == [("tickets", str(ticket.pk), "create")]


@pytest.mark.django_db
def test_a_fixture_publishes_each_row_once(tmp_path: Any) -> None:
    silent(Restaurant, name="a", seats=2)
    file = tmp_path / "places.json"
    call_command("dumpdata", "testapp.place", "testapp.restaurant", output=str(file))
    with unpublished(Place):
        Place.objects.all().delete()
    call_command("loaddata", str(file), verbosity=0)
    assert sorted(topic for topic, _, _ in published()) == ["places", "restaurants"]
    assert all('"name":"a"' in str(value) for value in values())


@pytest.mark.django_db
def test_a_key_without_a_value_is_refused() -> None:
    from django_outbox.contrib.publications import Publication

    one = Publication(
        model=Ticket,
        topic="t",
        key="owner",
        on=frozenset({"create"}),
        value=None,
        headers=[("a", "b")],
        event_header="event",
    )
    with pytest.raises(InvalidMessage, match=r"Ticket\.owner is None"):
        one.message(Ticket(number="a"), "create")
    message = one.message(Ticket(number="a", owner_id=4), "create")
    assert message.key == "4"
    assert message.headers == [("a", "b"), ("event", "create")]
