"""The how-to on models that publish is executed, block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.test.utils import isolate_apps

from django_outbox.contrib import publications
from django_outbox.models import OutboxRecord

PAGE = (Path(__file__).parents[2] / "docs/howto/publishing-models.md").read_text(
    "utf-8"
)
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def names(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names of an app's module; the tables of its models end with the test."""
    monkeypatch.setattr(publications, "_declared", {})
    with isolate_apps("django_outbox"):
        names: dict[str, Any] = {"__name__": "django_outbox.examples"}
        yield names
        with connection.schema_editor() as editor:
            for model in tables(names):
                editor.delete_model(model)


def tables(names: dict[str, Any]) -> list[type[models.Model]]:
    return [
        value
        for value in names.values()
        if isinstance(value, type)
        and issubclass(value, models.Model)
        and value.__module__ == names["__name__"]
    ]


def test_the_page_does_what_it_says(names: dict[str, Any]) -> None:
    for number, block in enumerate(BLOCKS):
        before = tables(names)
        code = compile(block, f"block {number} of publishing-models.md", "exec")
        exec(code, names)  # noqa: S102
        with connection.schema_editor() as editor:
            for model in tables(names):
                if model not in before:
                    editor.create_model(model)
    orders = names["Order"].objects
    assert {order.status for order in orders.all()} == {"late"}
    assert {order.note for order in orders.all()} == {"imported"}
    topics = OutboxRecord.objects.values_list("kafka_topic", flat=True)
    assert list(topics) == ["orders"] * 7


def test_the_invoice_is_sent_as_the_page_says(names: dict[str, Any]) -> None:
    (block,) = [block for block in BLOCKS if "class Invoice" in block]
    exec(BLOCKS[0], names)  # noqa: S102
    exec(block, names)  # noqa: S102
    with connection.schema_editor() as editor:
        for model in tables(names):
            editor.create_model(model)
    with transaction.atomic():
        names["Invoice"].objects.create(number="7", country="de", amount=3).delete()
    (row,) = OutboxRecord.objects.all()
    assert (row.kafka_topic, row.kafka_key) == ("invoices.de", "7")
    assert row.kafka_value == '{"number":"7","amount":3}'
    assert row.kafka_header_keys == ["version", "change"]
    assert row.kafka_header_values == ["1", "create"]
