"""System checks that need no database: each is broken once."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.checks import CheckMessage
from django.db import models
from pytest_django import Settings

from django_outbox.checks import check_routers, check_settings
from django_outbox.contrib.publishing_checks import check_publishing
from django_outbox.contrib.schema_checks import check_schemas
from django_outbox.models import OutboxRecord
from django_outbox.settings.problem import Rule
from tests.testapp.models import Order

ROOT = Path(__file__).resolve().parents[2]
KAFKA = {"bootstrap.servers": "kafka:9092"}


def ids(messages: list[CheckMessage]) -> list[str]:
    """Their ids, without the app's label, in order."""
    return [str(message.id).removeprefix("django_outbox.") for message in messages]


def test_the_tests_own_settings_pass() -> None:
    assert check_settings() == []
    assert check_routers() == []


def test_django_runs_the_checks(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"TABEL": "x"}
    messages = django_checks.run_checks(tags=["django_outbox"], databases=[])
    assert "E001" in ids(messages)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"TABEL": "outbox"}, "E001"),
        ({"MARK_BATCH": 0}, "E002"),
        ("text", "E002"),
        ({"SERIALIZER": "no.such.callable"}, "E002"),
        ({"SERIALIZER": "django_outbox.conf.SETTING"}, "E002"),
        ({"HEARTBEAT_TIMEOUT": 5.0}, "E003"),
        ({"KAFKA": {"acks": 1}}, "E004"),
        ({"PRODUCER_KAFKA": {"delivery.report.only.error": True}}, "E004"),
    ],
)
def test_a_wrong_setting_is_an_error_with_a_hint(
    settings: Settings, values: Any, expected: str
) -> None:
    if "SERIALIZER" in values:
        values = {**values, "KAFKA": KAFKA}
    settings.DJANGO_OUTBOX = values
    (message,) = check_settings()
    assert ids([message]) == [expected]
    assert message.is_serious()
    assert message.hint
    assert message.msg.startswith("DJANGO_OUTBOX")


@pytest.mark.parametrize("values", [{}, {"KAFKA": {}}, {"KAFKA": {"client.id": "x"}}])
def test_an_outbox_without_a_kafka_is_an_error(settings: Settings, values: Any) -> None:
    settings.DJANGO_OUTBOX = values
    (message,) = check_settings()
    assert ids([message]) == ["E012"]
    assert message.is_serious()
    assert "bootstrap.servers" in message.msg
    assert "rename" not in str(message.hint)


def test_librdkafkas_other_name_of_the_address_will_do(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"KAFKA": {"metadata.broker.list": "kafka:9092"}}
    assert check_settings() == []


def test_a_dict_of_another_name_is_found(settings: Settings) -> None:
    del settings.DJANGO_OUTBOX
    settings.OUTBOX = {"KAFKA": KAFKA}
    (message,) = check_settings()
    assert ids([message]) == ["E012"]
    assert "has OUTBOX, and no DJANGO_OUTBOX: rename it" in str(message.hint)


@pytest.mark.parametrize("setting", ["KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"])
@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (
            {"bootstrap_servers": "kafka:9092"},
            "'bootstrap_servers': no such librdkafka property; did you mean "
            '"bootstrap.servers"?',
        ),
        (
            {"compresion.type": "zstd"},
            "'compresion.type': no such librdkafka property; did you mean "
            '"compression.type"?',
        ),
        ({"nonsense": "x"}, "'nonsense': no such librdkafka property."),
        ({"security.protocol": "tls"}, "'security.protocol': Invalid value \"tls\""),
        ({"linger.ms": "soon"}, "'linger.ms': Invalid value"),
        ({"linger.ms": -1}, "outside allowed range"),
        ({"enable.ssl.certificate.verification": "nope"}, "Expected bool value"),
    ],
)
def test_what_librdkafka_refuses_is_an_error(
    settings: Settings, setting: str, properties: Any, words: str
) -> None:
    settings.DJANGO_OUTBOX = {"KAFKA": KAFKA} | {setting: KAFKA | properties}
    (message,) = check_settings()
    assert ids([message]) == ["E011"]
    assert message.msg.startswith(f"DJANGO_OUTBOX: {setting}: ")
    assert words in message.msg
    assert "\n" not in message.msg


def test_each_property_that_is_refused_is_named(settings: Settings) -> None:
    wrong = {"nonsense": "1", "linger.ms": "soon", "acks.": "x"}
    settings.DJANGO_OUTBOX = {"KAFKA": KAFKA | wrong}
    assert ids(check_settings()) == ["E011"] * 3


def test_two_properties_that_do_not_go_together_are_an_error(
    settings: Settings,
) -> None:
    both = {"reconnect.backoff.ms": 500, "reconnect.backoff.max.ms": 100}
    settings.DJANGO_OUTBOX = {"KAFKA": KAFKA | both}
    (message,) = check_settings()
    assert ids([message]) == ["E011"]
    assert "reconnect.backoff.max.ms" in message.msg


def test_a_check_needs_no_file_no_token_and_no_library(settings: Settings) -> None:
    """They are where the harvester runs, not where `migrate` does."""
    settings.DJANGO_OUTBOX = {
        "KAFKA": KAFKA
        | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/there/ca.pem",
            "ssl.key.location": "/there/key.pem",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": pytest.fail,
            "plugin.library.paths": "/there/plugin",
        }
    }
    assert check_settings() == []


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {
                "security.protocol": "SSL",
                "enable.ssl.certificate.verification": False,
            },
            ["W013"],
        ),
        (
            {
                "security.protocol": "sasl_ssl",
                "enable.ssl.certificate.verification": "false",
                "ssl.endpoint.identification.algorithm": "none",
            },
            ["W013"],
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.endpoint.identification.algorithm": "none",
            },
            ["W013"],
        ),
        ({"security.protocol": "SASL_PLAINTEXT"}, ["W014"]),
        ({"security.protocol": "SASL_SSL"}, []),
        (
            {
                "security.protocol": "SSL",
                "enable.ssl.certificate.verification": True,
                "ssl.endpoint.identification.algorithm": "https",
            },
            [],
        ),
        # Without TLS there is nothing to verify.
        ({"enable.ssl.certificate.verification": False}, []),
    ],
)
@pytest.mark.parametrize("setting", ["KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA"])
def test_what_others_could_read_is_a_warning(
    settings: Settings, setting: str, properties: Any, expected: list[str]
) -> None:
    settings.DJANGO_OUTBOX = {"KAFKA": KAFKA} | {setting: KAFKA | properties}
    messages = check_settings()
    assert ids(messages) == expected
    assert all(f": {setting}: " in message.msg for message in messages)
    assert not any(message.is_serious() for message in messages)


def test_all_wrong_settings_are_shown_at_once(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"TABEL": "x", "SHARDS": "1", "LEADER_TPIC": "y"}
    assert ids(check_settings()) == ["E001", "E002", "E001"]


class _Router:
    """Sends the outbox's rows and the others' where the test says."""

    def __init__(self, *, outbox: str, others: str, migrates: bool = True) -> None:
        self._outbox = outbox
        self._others = others
        self._migrates = migrates

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str:
        return self._outbox if model is OutboxRecord else self._others

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return None if app_label != "django_outbox" else self._migrates


def test_an_outbox_apart_from_the_business_rows_is_a_warning(
    settings: Settings,
) -> None:
    settings.DATABASE_ROUTERS = [_Router(outbox="other", others="default")]
    (message,) = check_routers()
    assert ids([message]) == ["W008"]
    assert not message.is_serious()
    assert "'other'" in message.msg
    assert "default" in message.msg


def test_an_outbox_beside_some_business_rows_is_right(settings: Settings) -> None:
    class _Split(_Router):
        def db_for_write(self, model: type[models.Model], **hints: Any) -> str:
            return "other" if model in (OutboxRecord, Order) else "default"

    settings.DATABASE_ROUTERS = [_Split(outbox="", others="")]
    assert check_routers() == []


@pytest.mark.parametrize(
    ("router", "reason"),
    [
        (_Router(outbox="nowhere", others="nowhere"), "is not in DATABASES"),
        (
            _Router(outbox="default", others="default", migrates=False),
            "do not allow its migration",
        ),
    ],
)
def test_a_database_that_cannot_hold_the_outbox_is_an_error(
    settings: Settings, router: _Router, reason: str
) -> None:
    settings.DATABASE_ROUTERS = [router]
    (message,) = check_routers()
    assert ids([message]) == ["E009"]
    assert reason in message.msg


def test_the_setting_database_is_checked_too(settings: Settings) -> None:
    settings.DJANGO_OUTBOX = {"DATABASE": "nowhere"}
    assert ids(check_routers()) == ["E009", "W008"]


def test_every_id_has_its_heading_in_the_docs() -> None:
    source = Path(inspect.getfile(check_settings)).read_text("utf-8")
    source += Path(inspect.getfile(check_publishing)).read_text("utf-8")
    source += Path(inspect.getfile(check_schemas)).read_text("utf-8")
    warnings = {Rule.TLS_VERIFICATION, Rule.CLEAR_TEXT}
    used = {f"{'W' if rule in warnings else 'E'}{rule.value:03d}" for rule in Rule}
    used |= set(re.findall(r"django_outbox\.([EW]\d{3})", source))
    page = (ROOT / "docs/reference/checks.md").read_text()
    headings = set(re.findall(r"^## django_outbox\.([EW]\d{3})", page, re.MULTILINE))
    assert used == headings
