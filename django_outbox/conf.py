"""
The settings of the Django project, read lazily from `DJANGO_OUTBOX`.

Adapters get values through their constructors and do not import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .exceptions import ConfigurationError
from .settings.options import OutboxSettings
from .settings.rules import problems

SETTING: Final = "DJANGO_OUTBOX"
"""The one name in the project's settings module."""


MISNAMED: Final = "OUTBOX"
"""A wrong name that projects use by mistake."""


class OutboxImproperlyConfigured(ConfigurationError, ImproperlyConfigured):
    """A setting of django-outbox is wrong, as an error that Django prints."""


def build(values: Mapping[str, Any]) -> OutboxSettings:
    """
    Turn a mapping of settings into `OutboxSettings`.

    Raises:
        OutboxImproperlyConfigured: with one line for the first problem.
    """
    for problem in problems(values):
        raise OutboxImproperlyConfigured(f"{problem.setting}: {problem.message}")
    return OutboxSettings(**values)


def serializer(name: str) -> Callable[[Any], Any]:
    """
    Import the callable that the setting SERIALIZER names.

    Raises:
        OutboxImproperlyConfigured: it cannot be imported, or is not callable.
    """
    try:
        found = import_string(name)
    except ImportError as exc:
        raise OutboxImproperlyConfigured(f"SERIALIZER: {exc}") from exc
    if not callable(found):
        raise OutboxImproperlyConfigured(
            f"SERIALIZER: {name} is a {type(found).__name__}; it must be callable."
        )
    return found  # type: ignore[no-any-return]


class _LazySettings:
    """The project's settings, read at first use and again after a change."""

    def __init__(self) -> None:
        self._built: OutboxSettings | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.snapshot(), name)

    def raw(self) -> Mapping[str, Any]:
        """The dict as the project wrote it, unchecked."""
        values = getattr(django_settings, SETTING, {})
        if not isinstance(values, Mapping):
            raise OutboxImproperlyConfigured(f"{SETTING} must be a dict of settings.")
        return values

    def snapshot(self) -> OutboxSettings:
        """The settings as one immutable value, the same object until a change."""
        if self._built is None:
            self._built = build(self.raw())
        return self._built

    def reset(self) -> None:
        self._built = None


settings = _LazySettings()


def lenient(*names: str) -> OutboxSettings:
    """
    Return these settings, and all others with their defaults.

    For code that runs before the system checks: if one of these settings is wrong,
    all have their defaults.
    """
    try:
        values = settings.raw()
        return build({name: values[name] for name in names if name in values})
    except OutboxImproperlyConfigured:
        return OutboxSettings()


def misnamed() -> str:
    """Return a hint, if the project's dict has another name; else nothing."""
    if hasattr(django_settings, SETTING) or not hasattr(django_settings, MISNAMED):
        return ""
    return f" The settings module has {MISNAMED}, and no {SETTING}: rename it."


def schema_settings() -> OutboxSettings:
    """Return the settings that models and migrations depend on."""
    return lenient("TABLE", "CLUSTER_ID", "CLUSTERS_COUNT")


def _reset_on_change(*, setting: str, **_: object) -> None:
    if setting == SETTING:
        settings.reset()


setting_changed.connect(_reset_on_change)
