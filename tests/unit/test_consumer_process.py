"""How the process of a consumer ends where it cannot start."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_outbox.consuming.consumer_process import Plan, run
from django_outbox.exceptions import ConfigurationError
from django_outbox.settings.options import OutboxSettings

from .consuming import group_of


@pytest.mark.parametrize(
    "wrong",
    [{"MIDDLEWARE": ["shop.middleware.Tenant"]}, {"SERIALIZER": "shop.serializers.x"}],
)
def test_a_setting_of_our_own_code_that_is_wrong_is_told_as_one(wrong: Any) -> None:
    """The command reports it in one line, with exit code 2."""
    options = OutboxSettings(KAFKA={"bootstrap.servers": "scripted:1"}, **wrong)
    group = group_of(print, transforms=True)
    plan = Plan(name="billing-1", group=group, alias="default")
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        run(plan, options, log_format="text", level=logging.CRITICAL)
