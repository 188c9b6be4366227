"""Business rows, to be written in one transaction with their messages."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20, unique=True)

    def __str__(self) -> str:
        return self.number
