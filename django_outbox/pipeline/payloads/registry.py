"""
The schema registry: which schema a value was written with, by its id.

Speaks the REST interface that Confluent's registry, Karapace, Redpanda and
Apicurio share. Called in the driver only; what it has answered is kept for the
life of the process, since an id never changes its meaning.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from typing import Any, Final, TypeAlias
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from ...exceptions import RegistryUnavailable

TIMEOUT: Final = 10.0
"""Seconds that one answer may take."""

PAUSES: Final = (0.2, 1.0)
"""Seconds before each further attempt, when there was no answer."""

_UNKNOWN: Final = frozenset({40401, 40402, 40403})
"""What registries say of a subject, version or schema that they do not have."""

_REFUSED: Final = (401, 403)
_BUSY: Final = 429
_OUTAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as the registry has it."""

    kind: str
    """`AVRO`, `PROTOBUF` or `JSON`."""
    text: str
    """An Avro schema in JSON, or a Protobuf file's descriptor in base64."""
    references: tuple[str, ...] = ()
    """Schemas that this one names, each behind those that it names itself."""


Writers: TypeAlias = tuple[tuple[int, Registered | str], ...]
"""Writers' schemas by their ids; a text says why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Where the registry is."""

    url: str
    """Without a slash at its end."""
    auth: str = field(default="", repr=False)
    """User and password with a colon between them; empty = nobody asks."""

    def schema(self, id: int) -> Registered | None:  # noqa: A002 - its name there
        """
        Return the schema with this id; None when there is none.

        Raises:
            RegistryUnavailable: there is no answer, or one that is of no use.
        """
        try:
            return _schema(self, id)
        except _UnknownError:
            return None

    def kinds(self) -> list[str]:
        """
        Return the kinds of schemas that it can keep.

        Raises:
            RegistryUnavailable: there is no answer, or one that is of no use.
        """
        return [str(kind) for kind in _get(self, "/schemas/types")]


class _UnknownError(LookupError):
    """The registry has nothing of that name. Never kept: it may come to have it."""


@lru_cache(maxsize=4096)
def _schema(registry: Registry, id: int) -> Registered:  # noqa: A002 - as above
    found = _get(registry, f"/schemas/ids/{id}")
    kind = str(found.get("schemaType", "AVRO"))
    if kind == "PROTOBUF":
        # As text only a Protobuf compiler could read it.
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
    """Add what a schema refers to, the innermost first."""
    for reference in schema.get("references", ()):
        place = (str(reference["subject"]), int(reference["version"]))
        if place not in known:
            subject, version = quote(place[0], safe=""), place[1]
            found = _get(registry, f"/subjects/{subject}/versions/{version}")
            _follow(registry, found, known)
            known[place] = str(found["schema"])


def _get(registry: Registry, path: str) -> Any:
    """Ask, three times if need be; the answer's JSON."""
    request = Request(f"{registry.url}{path}")  # noqa: S310 - config.py has looked
    if registry.auth:
        token = base64.b64encode(registry.auth.encode()).decode()
        # Not for the server that another one may lead to.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    for pause in (*PAUSES, None):
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
                return json.load(answer)
        except HTTPError as error:
            with error:
                problem = _read(error, registry, path)
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            problem = str(reason) or type(error).__name__
        if pause is not None:
            time.sleep(pause)
    raise _away(registry, problem)


def _read(error: HTTPError, registry: Registry, path: str) -> str:
    """What is wrong, when it is worth another attempt; raise otherwise."""
    problem = f"{error.code} {error.reason}"
    if error.code == _BUSY or error.code >= _OUTAGE:
        return problem
    try:
        code = json.load(error).get("error_code")
    except (OSError, ValueError, AttributeError):
        code = None
    if code in _UNKNOWN:
        raise _UnknownError(path)
    if error.code in _REFUSED:
        problem += " (registry_auth, OUTBOX_PIPELINE_REGISTRY_AUTH)"
    raise _away(registry, f"{problem} for {path}")


def _away(registry: Registry, problem: str) -> RegistryUnavailable:
    return RegistryUnavailable(
        f"the schema registry at {registry.url} gives no schema: {problem}."
        " Nothing is judged without it; run again when it answers."
    )
