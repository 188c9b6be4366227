"""Declarations of models that publish: what is refused, and what is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core import checks as django_checks
from django.db import models
from django.db.migrations.state import ModelState
from django.test.utils import isolate_apps

from django_outbox.contrib import publications, publishing_checks
from django_outbox.contrib.publishing import (
    PublishingManager,
    PublishingQuerySet,
    publishes,
    unpublished,
)
from django_outbox.exceptions import ConfigurationError
from tests.testapp.published import Departure, Owner, Ticket, UrgentTicket


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A registry for the models of one test, which the checks look at."""
    with isolate_apps("tests.testapp") as isolated:
        monkeypatch.setattr(publishing_checks, "apps", isolated)
        monkeypatch.setattr(publications, "_declared", {})
        yield isolated


class Named(models.Model):
    name = models.CharField(max_length=9)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


def ids() -> list[str]:
    return [str(message.id) for message in publishing_checks.check_publishing()]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"on": {"created"}}, r"testapp\.Order: on=\['created'\]; choose from create,"),
        ({"on": ()}, r"on=\[\]; choose"),
        ({"key": "number"}, r"testapp\.Order has no column 'number'; it has id, name"),
        ({"value": ["name", "nme"]}, "has no column 'nme'"),
        ({"headers": ["ab"]}, r"testapp\.Order: headers: each must be a \(name, value"),
    ],
)
def test_an_invalid_declaration_is_refused(
    apps: Any, options: dict[str, Any], reason: str
) -> None:
    class Order(Named):
        class Meta:
            app_label = "testapp"

    with pytest.raises(ConfigurationError, match=reason):
        publishes("orders", **options)(Order)
    assert publications.publications_of(Order) == []


def test_an_iterator_of_headers_is_kept_for_every_row(apps: Any) -> None:
    class Order(Named):
        class Meta:
            app_label = "testapp"

    publishes("orders", headers=iter([("a", "b")]))(Order)
    (publication,) = publications.publications_of(Order)
    messages = [publication.message(Order(pk=pk, name="x"), "create") for pk in (1, 2)]
    assert [message.headers for message in messages] == [
        [("a", "b"), ("event", "create")],
        [("a", "b"), ("event", "create")],
    ]


def test_a_declaration_of_a_proxy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="UrgentTicket is a proxy"):
        publishes("tickets")(UrgentTicket)


def test_a_table_that_django_makes_for_a_relation_is_refused(apps: Any) -> None:
    """It sends no signals."""

    class Bag(Named):
        things = models.ManyToManyField(Ticket)

        class Meta:
            app_label = "testapp"

    with pytest.raises(ConfigurationError, match="a through model of your own"):
        publishes("bag-things")(Bag.things.through)


def test_a_key_of_several_columns_needs_a_function(apps: Any) -> None:
    class Seat(Named):
        pk = models.CompositePrimaryKey("row", "number")
        row = models.IntegerField()
        number = models.IntegerField()

        class Meta:
            app_label = "testapp"

    with pytest.raises(ConfigurationError, match="several columns; pass a function"):
        publishes("seats")(Seat)
    publishes("seats", key=lambda seat: f"{seat.row}/{seat.number}")(Seat)
    (one,) = publications.publications_of(Seat)
    message = one.message(Seat(row=1, number=2, name="a"), "create")
    assert message.key == "1/2"
    assert message.value == {"pk": (1, 2), "name": "a", "row": 1, "number": 2}


def test_an_invalid_declaration_of_an_abstract_model_fails_with_its_first_table(
    apps: Any,
) -> None:
    @publishes("orders", key="nme")
    class Base(Named):
        class Meta:
            abstract = True

    with pytest.raises(ConfigurationError, match="has no column 'nme'"):

        class Order(Base):
            class Meta:
                app_label = "testapp"


def test_declarations_of_a_model_add_up(apps: Any) -> None:
    @publishes("orders")
    @publishes("audit")
    class Order(Named):
        class Meta:
            app_label = "testapp"

    topics = [one.topic for one in publications.publications_of(Order)]
    assert topics == ["audit", "orders"]


def test_no_fields_are_none_and_not_all(apps: Any) -> None:
    @publishes("orders", value=[])
    class Order(Named):
        class Meta:
            app_label = "testapp"

    (found,) = publications.publications_of(Order)
    assert found.message(Order(pk=1, name="secret"), "create").value == {}


def test_a_model_can_be_declared_later_with_all_that_inherit_from_it(
    apps: Any,
) -> None:
    class Order(Named):
        class Meta:
            app_label = "testapp"

    class Urgent(Order):
        class Meta:
            app_label = "testapp"
            proxy = True

    class Large(Order):
        class Meta:
            app_label = "testapp"

    publishes("orders")(Order)
    for model in (Order, Urgent, Large):
        assert models.signals.post_save.has_listeners(model)
        assert isinstance(model._default_manager, PublishingManager)
        assert isinstance(model._base_manager, PublishingManager)
    assert ids() == []


def test_the_plain_manager_is_replaced_and_no_migration_notices() -> None:
    assert isinstance(Ticket.objects, PublishingManager)
    assert isinstance(Ticket._base_manager, PublishingManager)
    assert ModelState.from_model(Ticket).managers == []
    assert "base_manager_name" not in ModelState.from_model(Ticket).options
    assert type(Departure.objects) is models.Manager


def test_a_manager_of_ones_own_publishes_if_it_is_derived(apps: Any) -> None:
    class Orders(PublishingQuerySet[Any]):
        def named(self) -> Any:
            return self.exclude(name="")

    @publishes("orders")
    class Order(Named):
        objects = Orders.as_manager()

        class Meta:
            app_label = "testapp"

    assert isinstance(Order._base_manager.all(), Orders)
    assert ids() == []
    assert ModelState.from_model(Order).managers == []


class Plain(models.Manager[Any]):
    """Derived from Django's."""


class Filtering(PublishingManager[Any]):
    """Leaves rows out."""

    def get_queryset(self) -> Any:
        return super().get_queryset().exclude(name="")


def test_another_manager_is_an_error_with_a_hint(apps: Any) -> None:
    @publishes("orders")
    class Order(Named):
        objects = Plain()

        class Meta:
            app_label = "testapp"

    default, base = publishing_checks.check_publishing()
    assert default.id == base.id == "django_outbox.E015"
    assert default.is_serious()
    assert default.msg.startswith("Order.objects: ")
    assert "PublishingManager" in str(default.hint)
    assert "base manager" in base.msg
    assert "base_manager_name" in str(base.hint)


def test_a_filtering_manager_leaves_the_base_manager_to_the_model(apps: Any) -> None:
    @publishes("orders")
    class Order(Named):
        objects = Filtering()

        class Meta:
            app_label = "testapp"

    @publishes("orders")
    class Covered(Named):
        objects = Filtering()
        every = PublishingManager()

        class Meta:
            app_label = "testapp"
            base_manager_name = "every"

    assert Order._meta.base_manager_name is None
    (message,) = publishing_checks.check_publishing()
    assert (message.id, message.obj) == ("django_outbox.E015", Order)


def test_an_heir_must_not_make_a_filtering_manager_the_base(apps: Any) -> None:
    @publishes("orders")
    class Order(Named):
        class Meta:
            app_label = "testapp"

    class Large(Order):
        objects = Filtering()

        class Meta:
            app_label = "testapp"

    (message,) = publishing_checks.check_publishing()
    assert (message.id, message.obj) == ("django_outbox.E015", Large)


def test_deletions_alone_need_no_manager(apps: Any) -> None:
    @publishes("orders", on={"delete"})
    class Order(Named):
        owner = models.ForeignKey(Owner, models.SET_NULL, null=True, related_name="+")
        objects = Plain()

        class Meta:
            app_label = "testapp"

    assert ids() == []
    assert Order._meta.base_manager_name is None


class DatabaseDoes:
    """Stands in for what Django 6.1 calls DB_CASCADE, and the like."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    ("on_delete", "on", "expected"),
    [
        (models.SET_NULL, "update", ["django_outbox.W016"]),
        (models.SET(None), "update", ["django_outbox.W016"]),
        (models.SET(lambda: None), "update", ["django_outbox.W016"]),
        (models.SET_DEFAULT, "update", ["django_outbox.W016"]),
        (models.SET_NULL, "create", []),
        (models.CASCADE, "delete", []),
        (models.PROTECT, "update", []),
        (DatabaseDoes("DB_CASCADE"), "delete", ["django_outbox.W016"]),
        (DatabaseDoes("DB_CASCADE"), "update", []),
        (DatabaseDoes("DB_SET_NULL"), "update", ["django_outbox.W016"]),
    ],
)
def test_a_relation_that_changes_rows_silently_is_a_warning(
    apps: Any, on_delete: Any, on: str, expected: list[str]
) -> None:
    @publishes("orders", on={on})
    class Order(Named):
        owner = models.ForeignKey(
            ContentType, on_delete, null=True, default=None, related_name="+"
        )

        class Meta:
            app_label = "testapp"

    assert ids() == expected


@pytest.mark.parametrize(
    ("on_delete", "words"),
    [
        (models.SET_NULL, "the deletion is refused"),
        (models.SET(None), "the deletion is refused"),
        (models.SET_DEFAULT, "changes rows without their messages"),
        (models.SET(lambda: None), "changes rows without their messages"),
        (DatabaseDoes("DB_SET_NULL"), "changes rows without their messages"),
    ],
)
def test_the_warning_tells_what_is_refused_from_what_is_not(
    apps: Any, on_delete: Any, words: str
) -> None:
    @publishes("orders", on={"update"})
    class Order(Named):
        owner = models.ForeignKey(
            ContentType, on_delete, null=True, default=None, related_name="+"
        )

        class Meta:
            app_label = "testapp"

    found = publishing_checks.check_publishing()
    (message,) = (m for m in found if m.id == "django_outbox.W016")
    assert words in message.msg


def test_django_runs_the_checks() -> None:
    messages = django_checks.run_checks(tags=["django_outbox"], databases=[])
    assert [m.id for m in messages if m.obj is not None] == ["django_outbox.W016"]


def test_to_silence_a_model_that_publishes_nothing_is_an_error() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"testapp\.Owner publishes nothing"),
        unpublished(Owner),
    ):
        pass
