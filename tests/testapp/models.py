"""Business rows, to be written in one transaction with their messages."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.db import models

from django_outbox import IdempotencyKeysField, IdempotentModel
from django_outbox.contrib.shredding import SubjectKey

from . import published  # noqa: F401  # its models are of this app


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)

    objects: ClassVar[models.Manager[Order]]

    def __str__(self) -> str:
        return self.number


class Effect(models.Model):
    """What a handler did: a row for each time, so that twice shows."""

    text = models.TextField()

    objects: ClassVar[models.Manager[Effect]]

    def __str__(self) -> str:
        return self.text


class Account(IdempotentModel):
    balance = models.IntegerField(default=0)

    objects: ClassVar[models.Manager[Account]]

    def __str__(self) -> str:
        return str(self.pk)


class ForgetfulAccount(IdempotentModel):
    balance = models.IntegerField(default=0)
    idempotency_keys = IdempotencyKeysField(max_count=2, max_age=timedelta(hours=1))

    objects: ClassVar[models.Manager[ForgetfulAccount]]

    def __str__(self) -> str:
        return str(self.pk)


class SavingsAccount(Account):
    """Its keys and its balance lie in the table of its parent."""

    rate = models.IntegerField(default=0)


class CustomerKey(SubjectKey):
    """The keys of subjects, which tests forget."""
