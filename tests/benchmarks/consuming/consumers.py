"""The handler: one row for each message."""

from __future__ import annotations

import os

from django.db import connection

from django_outbox import ConsumedMessage, consumer

from .by_hand import INSERT


@consumer(
    os.environ["BENCH_TOPIC"],
    group=os.environ["BENCH_GROUP"],
    batch=int(os.environ["BENCH_BATCH"]),
)
def keep(message: ConsumedMessage) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [message.key_text(), message.text()])
