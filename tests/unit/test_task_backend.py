"""What the backend of Django's tasks and `run_queue()` refuse (Django 6.0)."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from django_outbox import ConfigurationError
from django_outbox.consuming import handlers

pytest.importorskip("django.tasks", reason="Django 5.2 has no tasks")

BACKEND = "django_outbox.contrib.task_backend.OutboxTaskBackend"


def declare(settings: Settings, queue: str, **values: Any) -> None:
    from django_outbox.contrib.task_backend import run_queue

    settings.TASKS = {"default": {"BACKEND": BACKEND, **values}}
    run_queue(queue, group="g")


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> list[handlers.Subscription]:
    """The consumers of the test."""
    none: list[handlers.Subscription] = []
    monkeypatch.setattr(handlers, "_subscriptions", none)
    return none


def test_a_queue_that_the_backend_does_not_have_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"'mial' is not in QUEUES .*'mail'"):
        declare(settings, "mial", QUEUES=["default", "mail"])
    with pytest.raises(ConfigurationError, match=r"'mail' is not in .* of 'default'"):
        declare(settings, "mail")


def test_a_queue_of_the_backend_is_consumed(
    settings: Settings, declared: list[handlers.Subscription]
) -> None:
    declare(settings, "mail", QUEUES=["mail"], OPTIONS={"topic_prefix": "shop."})
    # Django allows every queue then.
    declare(settings, "any", QUEUES=[])
    assert [one.topics for one in declared] == [("shop.mail",), ("tasks.any",)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"topic-prefix": "shop."}, "no 'topic-prefix' in OPTIONS.* 'topic_prefix'"),
        ({"topic_prefix": None}, "topic_prefix=None must be a str"),
    ],
)
def test_an_unknown_option_is_refused(
    settings: Settings, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigurationError, match=error):
        declare(settings, "default", OPTIONS=options)
