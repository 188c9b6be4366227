"""`manage.py outbox settings`: every setting, and where its value comes from."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from django.db import OperationalError
from pytest_django import Settings

from django_outbox.management.identity_verb import report
from django_outbox.operations import effective_settings
from django_outbox.settings.options import OutboxSettings

from .outbox_command import run

pytestmark = pytest.mark.django_db


def setting(name: str) -> dict[str, Any]:
    """Return what the command says about one setting."""
    found = json.loads(run("settings", "--json"))["settings"]
    (one,) = [entry for entry in found if entry["name"] == name]
    return one


def test_settings_shows_every_setting_once() -> None:
    found = json.loads(run("settings", "--json"))
    names = [entry["name"] for entry in found["settings"]]
    assert names == [field.name for field in fields(OutboxSettings)]
    assert found["database"] == "default"


def test_settings_says_where_a_value_comes_from(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"SESSION_TIMEOUT": 8.0, "TABLE": "outbox"}
    assert setting("SESSION_TIMEOUT") == {
        "name": "SESSION_TIMEOUT",
        "value": 8.0,
        "default": 6.0,
        "source": "settings",
    }
    # Given, although it is the default.
    assert setting("TABLE")["source"] == "settings"
    assert setting("POLL_INTERVAL")["source"] == "default"
    assert setting("MAX_POLL_INTERVAL") == {
        "name": "MAX_POLL_INTERVAL",
        "value": 20.0,
        "default": 0.0,
        "source": "derived",
    }


def test_settings_derives_names_from_the_identity(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {}
    name = report("default")["leader_topic"]
    for one in ("LEADER_TOPIC", "LEADER_GROUP", "SOURCE"):
        assert setting(one)["value"] == name
        assert setting(one)["source"] == "derived"
    assert setting("DATABASE")["value"] == "default"


@pytest.mark.django_db(databases=["default", "other"])
def test_settings_are_those_of_the_database_that_is_asked_for(
    settings: Settings,
) -> None:
    settings.DJANGO_OUTBOX = {}
    found = json.loads(run("settings", "--database=other", "--json"))["settings"]
    values = {entry["name"]: entry["value"] for entry in found}
    assert values["DATABASE"] == "other"
    assert values["SOURCE"] == report("other")["leader_topic"]
    assert values["SOURCE"] != report("default")["leader_topic"]


def test_settings_hides_secrets(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {
        "KAFKA": {
            "bootstrap.servers": "kafka-1:9093",
            "sasl.password": "hunter2",
            "oauth_cb": print,
        },
        "PIPELINE": {
            "lake": "s3a://me:hunter2@lake",
            "registry_auth": "me:hunter2",
            "database_url": "hunter2",
            "clusters": {"1": "hunter2"},
            "spark": {"spark.hadoop.fs.s3a.access.key": "hunter2"},
            "cores": "4",
        },
    }
    for shown in (run("settings"), run("settings", "--json")):
        assert "hunter2" not in shown
        assert "kafka-1:9093" in shown
    assert setting("KAFKA")["value"]["sasl.password"] == "[hidden]"
    assert setting("PIPELINE")["value"] == {
        "lake": "[hidden]",
        "registry_auth": "[hidden]",
        "database_url": "[hidden]",
        "clusters": {"1": "[hidden]"},
        "spark": {"spark.hadoop.fs.s3a.access.key": "[hidden]"},
        "cores": "4",
    }
    assert setting("PIPELINE")["source"] == "settings"


def test_a_name_with_the_word_password_is_no_secret(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {
        "SOURCE": "password-service",
        "ALLOWED_TOPICS": ["password-resets"],
        "TOPIC_POISON_POLICY": {"password-resets": "park"},
    }
    assert setting("SOURCE")["value"] == "password-service"
    assert setting("ALLOWED_TOPICS")["value"] == ["password-resets"]
    policies = setting("TOPIC_POISON_POLICY")["value"]
    assert policies == {"password-resets": "park"}


def test_settings_for_people(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"NOTIFY": True, "SOURCE": "shop"}
    lines = [line.split(maxsplit=2) for line in run("settings").splitlines()]
    assert ["NOTIFY", "settings", "True  (default False)"] in lines
    assert ["SOURCE", "settings", "'shop'  (default '')"] in lines
    assert ["POLL_INTERVAL", "default", "0.1"] in lines
    assert ["HEARTBEAT_INTERVAL", "derived", "0.5  (default 0.0)"] in lines


def test_settings_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(effective_settings, "read_identity", away)
    assert setting("LEADER_TOPIC")["value"] == ""
    assert setting("TABLE")["value"] == "outbox"
