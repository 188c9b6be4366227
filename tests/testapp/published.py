"""Models that publish, and models that inherit from them or point to them."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.db import models

from django_outbox.contrib.publishing import publishes


class Owner(models.Model):
    """Publishes nothing."""

    name = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Owner]]

    def __str__(self) -> str:
        return self.name


@publishes("tickets")
class Ticket(models.Model):
    """With Django's plain manager."""

    number = models.CharField(max_length=20, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=Decimal(0))
    owner = models.ForeignKey(Owner, models.CASCADE, null=True)

    objects: ClassVar[models.Manager[Ticket]]

    def __str__(self) -> str:
        return self.number


class UrgentTicket(Ticket):
    """Another class for the same table."""

    class Meta:
        proxy = True


def region(line: Line) -> str:
    return f"lines.{line.text}"


@publishes(
    region,
    key="ticket",
    value=["pk", "text", "ticket"],
    headers=lambda line: {"length": str(len(line.text))},
    event_header="kind",
)
class Line(models.Model):
    """Deleted with its ticket."""

    ticket = models.ForeignKey(Ticket, models.CASCADE, related_name="lines")
    text = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Line]]

    def __str__(self) -> str:
        return self.text


@publishes("badges")
class Badge(models.Model):
    """Changed by the deletion of its owner."""

    owner = models.ForeignKey(Owner, models.SET_NULL, null=True, related_name="badges")

    objects: ClassVar[models.Manager[Badge]]

    def __str__(self) -> str:
        return str(self.pk)


@publishes("places", value=["name"])
class Place(models.Model):
    """Has a table, as do the models that inherit from it."""

    name = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Place]]

    def __str__(self) -> str:
        return self.name


@publishes("restaurants", value=["pk", "name", "seats"])
class Restaurant(Place):
    """A second table."""

    seats = models.IntegerField(default=0)


class Bar(Place):
    """A second table, without a declaration of its own."""

    taps = models.IntegerField(default=0)


@publishes("audit", event_header=None, value=lambda row: type(row).__name__)
class Audited(models.Model):
    """Has no table."""

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.pk)


class Contract(Audited):
    """Inherits the declaration only."""

    objects: ClassVar[models.Manager[Contract]]


@publishes("leases", on={"create"}, value=lambda lease: lease.pk)
class Lease(Audited):
    """Adds a declaration."""

    objects: ClassVar[models.Manager[Lease]]


class LongLease(Lease):
    """A second table below an abstract declaration."""


@publishes("arrivals", on={"create"})
class Arrival(models.Model):
    """Only its creation is published."""

    name = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Arrival]]

    def __str__(self) -> str:
        return self.name


@publishes("departures", on={"delete"})
class Departure(models.Model):
    """Only its deletion is published."""

    name = models.CharField(max_length=20)

    objects: ClassVar[models.Manager[Departure]]

    def __str__(self) -> str:
        return self.name


@publishes("papers")
class Paper(models.Model):
    """Columns that JSON has no word for, and one that the database computes."""

    file = models.FileField(null=True)
    raw = models.BinaryField(null=True)
    size = models.IntegerField(default=1)
    double = models.GeneratedField(
        expression=models.F("size") * 2,
        output_field=models.IntegerField(),
        db_persist=True,
    )

    objects: ClassVar[models.Manager[Paper]]

    def __str__(self) -> str:
        return str(self.pk)
