"""
Client of the schema registry: writers' schemas by id.

Uses the REST API that Confluent's registry, Karapace, Redpanda and Apicurio
share. Schemas are cached for the life of the process, because the schema of an
id never changes.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from ...exceptions import RegistryUnavailable

TIMEOUT: Final = 10.0
"""Seconds to wait for one response."""

MAX_ID: Final = 2**31 - 1
"""Registries count in Java's int, and take a larger number for a wrong URL."""

RETRY_DELAYS: Final = (0.2, 1.0)
"""Seconds before each retry."""

UNKNOWN: Final = frozenset({40401, 40402, 40403})
"""Error codes for a subject, version or schema that does not exist."""

UNAUTHORIZED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema in the registry."""

    kind: str
    """`AVRO`, `PROTOBUF` or `JSON`."""
    text: str
    """An Avro schema in JSON, or a Protobuf file descriptor in base64."""
    references: tuple[str, ...] = ()
    """Schemas that this one refers to, each after its own references."""


Writers: TypeAlias = tuple[tuple[int, Registered | str], ...]
"""Writers' schemas by id; a text says why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """A schema registry."""

    url: str
    """URL without a trailing slash."""
    auth: str = field(default="", repr=False)
    """`user:password`; empty = no authentication."""

    def schema(self, id: int) -> Registered | None:  # noqa: A002 - its name there
        """
        Return the schema with this id; None if there is none.

        Raises:
            RegistryUnavailable: no usable response after all retries.
        """
        if id > MAX_ID:
            return None
        try:
            return _schema(self, id)
        except _UnknownError:
            return None

    def kinds(self) -> list[str]:
        """
        Return the schema types that the registry supports.

        Raises:
            RegistryUnavailable: no usable response after all retries.
        """
        return [str(kind) for kind in _get(self, "/schemas/types")]


class _UnknownError(LookupError):
    """The registry has no such entry. Not cached, because it may be added later."""


@lru_cache(maxsize=4096)
def _schema(registry: Registry, id: int) -> Registered:  # noqa: A002 - as above
    found = _get(registry, f"/schemas/ids/{id}")
    kind = str(found.get("schemaType", "AVRO"))
    if kind == "PROTOBUF":
        # The plain text would need a Protobuf compiler.
        found = _get(registry, f"/schemas/ids/{id}?format=serialized")
    references: dict[tuple[str, int], str] = {}
    if kind == "AVRO":
        _follow(registry, found, references)
    return Registered(
        kind=kind, text=str(found["schema"]), references=tuple(references.values())
    )


def _follow(
    registry: Registry, schema: dict[str, Any], known: dict[tuple[str, int], str]
) -> None:
    """Add the schemas that a schema refers to, the innermost first."""
    for reference in schema.get("references", ()):
        subject, version = str(reference["subject"]), int(reference["version"])
        if (subject, version) not in known:
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            found = _get(registry, path)
            _follow(registry, found, known)
            known[subject, version] = str(found["schema"])


def _get(registry: Registry, path: str) -> Any:
    """Send a GET request, with retries; return the JSON of the response."""
    request = Request(f"{registry.url}{path}")  # noqa: S310 - the settings check it
    if registry.auth:
        token = base64.b64encode(registry.auth.encode()).decode()
        # The target of a redirect must not get the password.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    for delay in (*RETRY_DELAYS, None):
        try:
            with urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310 - as above
                return json.load(response)
        except HTTPError as error:
            with error:
                problem = _retriable_problem(error, registry, path)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            problem = str(reason) or type(error).__name__
        if delay is not None:
            time.sleep(delay)
    raise _unavailable(registry, problem)


def may_pass(status: int) -> bool:
    """Whether a request with this HTTP status may succeed later, unchanged."""
    is_server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return is_server_error or status == HTTPStatus.TOO_MANY_REQUESTS


def _retriable_problem(error: HTTPError, registry: Registry, path: str) -> str:
    """Return the problem if a retry may help; raise otherwise."""
    problem = f"{error.code} {error.reason}"
    if may_pass(error.code):
        return problem
    try:
        code = json.load(error).get("error_code")
    except (OSError, ValueError, AttributeError):
        code = None
    if code in UNKNOWN:
        raise _UnknownError(path)
    if error.code in UNAUTHORIZED:
        problem += " (registry_auth, OUTBOX_PIPELINE_REGISTRY_AUTH)"
    raise _unavailable(registry, f"{problem} for {path}")


def _unavailable(registry: Registry, problem: str) -> RegistryUnavailable:
    return RegistryUnavailable(
        f"Schema registry {registry.url} unavailable: {problem}. No records were"
        " processed."
    )
