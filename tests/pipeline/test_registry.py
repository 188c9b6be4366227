"""What the schema registry's client asks, keeps, and makes of each answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from django_outbox.exceptions import RegistryUnavailable
from django_outbox.pipeline.payloads import registry as module
from django_outbox.pipeline.payloads.registry import Registered, Registry

from .payloads import RegistryServer, proto_file, registry_server

SCHEMA = {"type": "fixed", "name": "T", "size": 2}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(module, "RETRY_DELAYS", (0.0,))
    with registry_server() as running:
        yield running


@pytest.fixture
def registry(server: RegistryServer) -> Registry:
    return Registry(url=server.url, auth="me:sécret")


def test_an_id_is_asked_for_once(server: RegistryServer, registry: Registry) -> None:
    server.has_avro(7, SCHEMA)
    expected = Registered(kind="AVRO", text=json.dumps(SCHEMA))
    assert [registry.schema(7), registry.schema(7)] == [expected, expected]
    assert server.asked == ["/schemas/ids/7"]
    token = base64.b64encode("me:sécret".encode()).decode()
    assert server.authorization == {f"Basic {token}"}


def test_an_id_that_is_unknown_may_be_known_later(
    server: RegistryServer, registry: Registry
) -> None:
    assert registry.schema(7) is None
    server.has_avro(7, SCHEMA)
    assert registry.schema(7) is not None


def test_an_id_that_no_registry_can_have_is_not_asked_for(
    server: RegistryServer, registry: Registry
) -> None:
    assert registry.schema(2**31) is None
    assert server.asked == []


def test_what_a_schema_refers_to_comes_along_the_innermost_first(
    server: RegistryServer, registry: Registry
) -> None:
    def reference(subject: str) -> dict[str, Any]:
        return {"references": [{"name": "T", "subject": subject, "version": 3}]}

    server.has_avro(7, SCHEMA, **reference("outer value"))
    server.answers["/subjects/outer%20value/versions/3"] = (
        200,
        {"schema": "outer", **reference("inner")},
    )
    server.answers["/subjects/inner/versions/3"] = (200, {"schema": "inner"})
    found = registry.schema(7)
    assert found is not None
    assert found.references == ("inner", "outer")


def test_a_protobuf_file_comes_as_its_descriptor(
    server: RegistryServer, registry: Registry
) -> None:
    server.has_protobuf(7)
    found = registry.schema(7)
    assert found is not None
    assert found.kind == "PROTOBUF"
    assert base64.b64decode(found.text) == proto_file().SerializeToString()


@pytest.mark.parametrize(
    ("answer", "problem", "attempts"),
    [
        ((404, b"<html>not here</html>"), "404 Not Found for /schemas/ids/7", 1),
        ((401, {"error_code": 401}), "401 Unauthorized (registry_auth, OUTBOX", 1),
        ((500, {"error_code": 50001}), "500 Internal Server Error", 2),
        ((429, {}), "429 Too Many Requests", 2),
        ((200, b"<html>hello</html>"), "Expecting value", 2),
    ],
)
def test_an_answer_of_no_use_is_no_word_on_the_schema(
    answer: tuple[int, Any],
    problem: str,
    attempts: int,
    server: RegistryServer,
    registry: Registry,
) -> None:
    server.answers["/schemas/ids/7"] = answer
    with pytest.raises(RegistryUnavailable) as caught:
        registry.schema(7)
    assert f"{server.url} unavailable: {problem}" in str(caught.value)
    assert "sécret" not in str(caught.value)
    assert len(server.asked) == attempts
    server.has_avro(7, SCHEMA)
    assert registry.schema(7) is not None


def test_a_registry_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_DELAYS", ())
    with registry_server() as running:
        away = Registry(url=running.url)
        assert away.kinds() == ["JSON", "PROTOBUF", "AVRO"]
    with pytest.raises(RegistryUnavailable, match="Connection refused"):
        away.schema(7)
