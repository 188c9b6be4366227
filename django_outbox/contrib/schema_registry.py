"""
A schema registry that speaks Confluent's API, such as Karapace, Redpanda or Apicurio.

Each process has a client of its own, made at the first call. What the registry has
said of a schema is kept for the life of the process. A registry that does not answer
costs one caller a few seconds: calls that follow soon fail at once, so that requests
do not queue up behind a time-out each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from ..clock import boottime
from ..exceptions import ConfigurationError, RegistryUnavailable
from ..pipeline.payloads.registry import UNAUTHORIZED, UNKNOWN, may_pass

DEFAULTS: Final[Mapping[str, Any]] = {
    "timeout": 2.0,  # seconds, for each of connecting, sending and receiving
    "max.retries": 1,
    "retries.wait.ms": 100,
    "retries.max.wait.ms": 200,
}
"""Properties of the client: a request waits about four seconds, and not minutes."""

PAUSE: Final = 3.0
"""Seconds without another call, after one that had no answer."""

_KEPT: Final = frozenset({"lookup_schema", "get_schema", "get_version"})
"""Calls whose answer never changes, once there is one."""

_REFUSED: Final = frozenset({409, 422})
"""HTTP status of a schema that is not compatible, or not valid."""


class NotRegistered(ConfigurationError):
    """The registry does not have this schema."""


class SchemaRegistry:
    """
    A schema registry.

    Args:
        properties: of confluent-kafka's `SchemaRegistryClient`: `url`,
            `basic.auth.user.info`, `ssl.ca.location` and others; `timeout` is in
            seconds.
        auto_register: whether a process that writes registers a schema that is
            missing. For development: elsewhere `register_schemas()` does it once.

    Raises:
        ConfigurationError: there is no usable URL.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, auto_register: bool = False
    ) -> None:
        self.url = _checked_url(properties.get("url"))
        self.auto_register = auto_register
        self._client = _Client(self.url, {**DEFAULTS, **properties})

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"

    def close(self) -> None:
        """Close this process's connections; the next call opens one again."""
        self._client.close()

    @property
    def client(self) -> SchemaRegistryClient:
        """
        The client, for confluent-kafka's serializers.

        Its methods raise `NotRegistered` for what the registry does not have,
        `ConfigurationError` for a schema that it refuses, and `RegistryUnavailable`
        for everything else.
        """
        return cast("SchemaRegistryClient", self._client)


class _Client:
    """Passes calls on to this process's client; keeps answers, translates errors."""

    def __init__(self, url: str, properties: Mapping[str, Any]) -> None:
        self._url = url
        self._properties = properties
        self._process = 0
        self._real: SchemaRegistryClient | None = None
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._resumes_at = 0.0
        self._problem = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._call, name)

    def close(self) -> None:
        real, self._real = self._real, None
        if real is not None and self._process == os.getpid():
            real.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        asked = (name, *args, *sorted(kwargs.items())) if name in _KEPT else None
        if asked in self._answers:
            return self._answers[asked]
        if boottime() < self._resumes_at:
            raise self._unavailable(self._problem)
        found = self._ask(getattr(self._of_this_process(), name), args, kwargs)
        if asked is not None:
            self._answers[asked] = found
        return found

    def _ask(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if error.error_code in UNKNOWN:
                raise NotRegistered from error
            if status in _REFUSED:
                raise ConfigurationError(
                    f"Schema registry {self._url} refused the schema: "
                    f"{error.error_message}"
                ) from error
            problem = str(error)
            if status in UNAUTHORIZED:
                problem += ". Check basic.auth.user.info"
            elif may_pass(status):
                self._pause(problem)
            raise self._unavailable(problem) from error
        except Exception as error:
            # The client's HTTP library has errors of its own, which differ by version.
            self._pause(str(error) or type(error).__name__)
            raise self._unavailable(self._problem) from error

    def _of_this_process(self) -> SchemaRegistryClient:
        # After a fork the child must not write to its parent's connections.
        if self._real is None or self._process != os.getpid():
            try:
                self._real = SchemaRegistryClient({**self._properties})
            except (OSError, TypeError, ValueError) as error:
                raise ConfigurationError(
                    f"Schema registry {self._url}: {error}. Correct its properties."
                ) from error
            self._process = os.getpid()
        return self._real

    def _pause(self, problem: str) -> None:
        self._problem = problem
        self._resumes_at = boottime() + PAUSE

    def _unavailable(self, problem: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"Schema registry {self._url} unavailable: {problem}."
        )


def _checked_url(url: object) -> str:
    """Return the URL of a registry; several are separated by commas."""
    for one in str(url or "").split(","):
        parts = urlsplit(one.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            # Not the value: it may contain a password.
            raise ConfigurationError(
                "Schema registry: the property url must be an http:// or https:// URL."
            )
        if "@" in parts.netloc:
            raise ConfigurationError(
                "Schema registry: move user and password from url to "
                "basic.auth.user.info."
            )
    return str(url)
