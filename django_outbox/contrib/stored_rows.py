"""The row of an object that was saved, where the object may differ from it."""

from __future__ import annotations

from typing import TypeVar

from django.db import models

_Row = TypeVar("_Row", bound=models.Model)


def as_stored(row: _Row, *, using: str, is_whole: bool = True) -> _Row:
    """
    Return the object itself, or read its row again if the two may differ.

    They may when not all of it was saved, for expressions such as `F()`, and for
    columns that the database computes.
    """
    has_expression = any(
        hasattr(content, "resolve_expression") for content in vars(row).values()
    )
    is_computed = any(field.generated for field in row._meta.concrete_fields)
    if is_whole and not has_expression and not is_computed:
        return row
    return type(row)._base_manager.using(using).get(pk=row.pk)
