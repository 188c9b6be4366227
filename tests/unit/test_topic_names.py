"""The variables of a declared topic's name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_outbox import InvalidMessage
from django_outbox.contrib.topic_names import TopicName

ORDERS = TopicName("{tenant}.orders")


def test_a_variable_is_filled_in() -> None:
    assert ORDERS.filled({"tenant": "acme"}) == "acme.orders"


@pytest.mark.parametrize(
    ("tenant", "kind"),
    [(None, "NoneType"), (7, "int"), (UUID(int=1), "UUID"), ("", "empty")],
)
def test_a_variable_without_text_is_refused(tenant: Any, kind: str) -> None:
    """The message would go to None.orders, whose consumers do not exist."""
    with pytest.raises(InvalidMessage, match=rf"tenant of .* not {kind}\.$"):
        ORDERS.filled({"tenant": tenant})
