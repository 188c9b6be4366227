"""
Turn environment variables into `DATABASES` and `DJANGO_OUTBOX`.

Only variables that are set reach the dicts, so that the library's defaults
apply. Errors name the variable. An empty variable counts as not set.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

import environ
from django.core.exceptions import ImproperlyConfigured

from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.rules import problems

PREFIX: Final = "OUTBOX_"
KAFKA_PREFIX: Final = "OUTBOX_KAFKA_"
PIPELINE_PREFIX: Final = "OUTBOX_PIPELINE_"
"""Read by the pipeline itself."""

_Value = TypeVar("_Value")

_WRONG_URL: Final = (
    "DATABASE_URL must look like postgres://user:password@host:5432/name, with special "
    "characters percent-encoded."
)
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


def database(environment: Mapping[str, str]) -> dict[str, Any]:
    """
    Make the value of `DATABASES["default"]`.

    Raises:
        ImproperlyConfigured: one line, without the URL's password.
    """
    if not (url := environment.get("DATABASE_URL")):
        raise ImproperlyConfigured(
            "DATABASE_URL is not set and no devstack is running. Set it, or start one "
            "in another terminal: python -m django_outbox.devstack"
        )
    if not url.startswith(("postgres://", "postgresql://")):
        raise ImproperlyConfigured(_WRONG_URL)
    try:
        return dict(environ.Env.db_url_config(url))
    except ValueError:
        # The parser's own message could show a part of the password.
        raise ImproperlyConfigured(_WRONG_URL) from None


def seconds(environment: Mapping[str, str], name: str, *, default: float) -> float:
    """Read a duration of the project in seconds."""
    text = environment.get(name)
    duration = default if not text else _read(name, text, _number)
    if not duration > 0:
        raise ImproperlyConfigured(f"{name}: {text!r} must be above 0.")
    return duration


def outbox_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """
    Make the value of `DJANGO_OUTBOX`.

    Raises:
        ImproperlyConfigured: one line that names the variable.
    """
    found = {name: text for name, text in environment.items() if text}
    casts = {
        f"{PREFIX}{field.name}": _CASTS[str(field.type)]
        for field in fields(OutboxSettings)
        if str(field.type) in _CASTS
    }
    values: dict[str, Any] = {}
    # Not by django-environ, which takes a value that begins with a dollar sign, as a
    # password may, for the name of another variable.
    for name, text in found.items():
        if not name.startswith(PREFIX) or name.startswith(
            (KAFKA_PREFIX, PIPELINE_PREFIX)
        ):
            continue
        if name not in casts:
            raise ImproperlyConfigured(_unknown(name, casts))
        values[name.removeprefix(PREFIX)] = _read(name, text, casts[name])
    if kafka := _kafka(found):
        values["KAFKA"] = kafka
    for problem in problems(values):
        is_kafka = problem.setting == "KAFKA"
        name = f"{KAFKA_PREFIX}*" if is_kafka else f"{PREFIX}{problem.setting}"
        raise ImproperlyConfigured(f"{name}: {problem.message}")
    return values


def _read(name: str, text: str, cast: Callable[[str], _Value]) -> _Value:
    try:
        return cast(text)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}.") from None


def _kafka(environment: Mapping[str, str]) -> dict[str, str]:
    """Collect librdkafka's properties as text."""
    properties = {
        name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): text
        for name, text in environment.items()
        if name.startswith(KAFKA_PREFIX)
    }
    if servers := environment.get("KAFKA_BOOTSTRAP_SERVERS"):
        properties.setdefault("bootstrap.servers", servers)
    return properties


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{name}: there is no such setting.{hint}"


# django-environ's casts are lenient: its float reads "1e3" as 13, its bool reads a
# typing error as False.


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    return number


def _switch(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither 1 nor 0")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in _names(text)]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise ValueError(f"{wrong[0]!r} is not of the form name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


_CASTS: Final[dict[str, Callable[[str], Any]]] = {
    "str": str,
    "str | None": str,
    "int": _integer,
    "int | None": _integer,
    "float": _number,
    "bool": _switch,
    "tuple[str, ...]": _names,
    "Mapping[str, str]": _pairs,
}
"""How to read a variable, by the type of its setting; other mappings are not read."""
