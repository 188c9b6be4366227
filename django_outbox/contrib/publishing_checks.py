"""System checks of models that publish: what could change their rows silently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.db import models

from .publications import CREATE, DELETE, UPDATE, Model, publications_of
from .publishing_manager import PublishingQuerySet

_BY_SIGNAL: Final = (
    models.CASCADE,
    models.PROTECT,
    models.RESTRICT,
    models.DO_NOTHING,
)
"""They change no row, or delete it with a signal."""


def check_publishing(**_: Any) -> list[CheckMessage]:
    """E015 and W016: managers and relations of models that publish."""
    return [
        message
        for model in apps.get_models()
        if publications_of(model)
        for message in (*_manager_messages(model), *_relation_messages(model))
    ]


def _events(model: Model) -> set[str]:
    return {event for one in publications_of(model) for event in one.on}


def _manager_messages(model: Model) -> Iterator[CheckMessage]:
    if not _events(model) & {CREATE, UPDATE}:
        return
    name = model.__name__
    for manager in model._meta.managers:
        if not isinstance(manager.get_queryset(), PublishingQuerySet):
            yield Error(
                f"{name}.{manager.name}: its bulk operations would change rows "
                "without their messages.",
                hint="Derive the manager from PublishingManager, and its queryset "
                "from PublishingQuerySet.",
                obj=model,
                id="django_outbox.E015",
            )
    rows = model._base_manager.get_queryset()
    if not isinstance(rows, PublishingQuerySet) or rows.query.where:
        yield Error(
            f"{name}: related managers and deletions of other rows would change rows "
            "without their messages, because the base manager does not publish, or "
            "leaves rows out.",
            hint="Set Meta.base_manager_name to a PublishingManager without a filter.",
            obj=model,
            id="django_outbox.E015",
        )


def _relation_messages(model: Model) -> Iterator[CheckMessage]:
    events = _events(model)
    for field in model._meta.concrete_fields:
        on_delete = getattr(field.remote_field, "on_delete", None)
        if on_delete is None or on_delete in _BY_SIGNAL:
            continue
        called = getattr(on_delete, "__name__", str(on_delete))
        is_refused = getattr(on_delete, "lazy_sub_objs", False)
        if (DELETE if "CASCADE" in called else UPDATE) in events:
            yield CheckWarning(
                f"{model.__name__}.{field.name}: on_delete={called} changes rows "
                + (
                    "without signals, so the deletion is refused."
                    if is_refused
                    else "without their messages."
                ),
                hint="Use CASCADE, PROTECT or RESTRICT; or change the rows with save() "
                "before the deletion, or delete inside unpublished().",
                obj=model,
                id="django_outbox.W016",
            )
