"""Passwords in the settings come out nowhere."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from pytest_django import Settings

from django_outbox import conf
from django_outbox.checks import check_settings
from django_outbox.exceptions import ConfigurationError
from django_outbox.kafka.consumer import KafkaSource
from django_outbox.kafka.membership import KafkaMembership
from django_outbox.kafka.producer import KafkaProducer
from django_outbox.kafka.transactions import KafkaTransactions
from django_outbox.kafka.validation import check_properties
from django_outbox.pipeline import pipeline_settings as pipeline
from django_outbox.relay.batch import Batch
from django_outbox.settings.options import OutboxSettings
from django_outbox.settings.rules import problems
from django_outbox.standalone.configuration import configure

from .samples import record

SECRET = "hunter2-top-secret"
KAFKA = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": f"user-{SECRET}",
    "sasl.password": SECRET,
    "ssl.key.password": SECRET,
}
URL = f"postgres://outbox:{SECRET}@db/outbox"
KEY = base64.b64encode(bytes(32)).decode()

MISTAKES: list[dict[str, Any]] = [
    {"KAFKA": f"sasl.password={SECRET}"},
    {"KAFKA": [f"sasl.password={SECRET}"]},
    {"KAFKA": KAFKA | {"sasl.password": [SECRET]}},
    {"KAFKA": KAFKA | {"ssl.key.pem": SECRET}},
    {"KAFKA": KAFKA | {"ssl.key.pem": [SECRET, SECRET]}},
    {"KAFKA": KAFKA | {"linger.ms": "soon"}},
    {"KAFKA": KAFKA | {"nonsense": SECRET}},
    {"KAFKA": KAFKA | {"sasl.pasword": SECRET}},
    {"KAFKA": KAFKA, "PRODUCER_KAFKA": f"{SECRET}"},
    {"KAFKA": KAFKA, "CONSUMER_KAFKA": (SECRET,)},
    {"KAFKA": KAFKA, "PIPELINE": URL},
    {"KAFKA": KAFKA, "PIPELINE": [URL]},
    {"KAFKA": KAFKA | {"acks": SECRET}},
    {"KAFKA": KAFKA | {"sasl.mechanisms": f"a{SECRET}"}, "SESSION_TIMEOUT": 7000},
]


@pytest.mark.parametrize("values", MISTAKES)
def test_no_check_shows_one(settings: Settings, values: dict[str, Any]) -> None:
    settings.DJANGO_OUTBOX = values
    for message in check_settings():
        assert SECRET not in f"{message} {message!r} {message.msg} {message.hint}"
    for problem in problems(values):
        assert SECRET not in f"{problem}"


@pytest.mark.parametrize("values", MISTAKES)
def test_no_error_shows_one(values: dict[str, Any]) -> None:
    try:
        check_properties(conf.build(values))
    except ConfigurationError as error:
        shown: BaseException | None = error
        while shown is not None:
            assert SECRET not in f"{shown} {shown!r}"
            shown = shown.__cause__


def test_a_secret_that_librdkafka_quotes_is_hidden() -> None:
    options = OutboxSettings(KAFKA=KAFKA | {"sasl.mechanisms": SECRET})
    with pytest.raises(ConfigurationError) as caught:
        check_properties(options)
    assert "Unsupported SASL mechanism: [hidden]" in str(caught.value)


def test_no_settings_object_shows_one() -> None:
    names = ("KAFKA", "PRODUCER_KAFKA", "CONSUMER_KAFKA", "PIPELINE")
    values: dict[str, Any] = dict.fromkeys(names, KAFKA)
    options = OutboxSettings(**values)
    assert SECRET not in repr(options)
    for field in fields(OutboxSettings):
        assert (f"{field.name}=" in repr(options)) == (field.name not in names)


def test_no_pipeline_shows_one() -> None:
    settings = pipeline.build(
        {
            "lake": "/lake",
            "kafka": {"sasl.jaas.config": SECRET},
            "database_url": URL,
            "registry": "https://registry",
            "registry_auth": f"user:{SECRET}",
            "payload_keys": f"{SECRET}:{KEY} b:{KEY}",
            "spark": {"spark.hadoop.fs.s3a.secret.key": SECRET},
            "clusters": {"shop/0": URL, "shop/1": URL},
        }
    )
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    "mistake",
    [
        {"database_url": [URL]},
        {"clusters": URL},
        {"kafka": SECRET},
        {"kafka": {"sasl.jaas.config": [SECRET]}},
        {"spark": SECRET},
        {"registry": f"user:{SECRET}@registry"},
        {"registry": f"https://user:{SECRET}@registry"},
        {"registry_auth": [SECRET]},
        {"payload_keys": [SECRET]},
        {"payload_keys": SECRET},
        {"payload_keys": f"a:{KEY} {SECRET}:{SECRET}"},
    ],
)
def test_no_error_of_the_pipeline_shows_one(mistake: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        pipeline.build({"lake": "/lake", **mistake})
    assert SECRET not in str(caught.value)


def test_no_file_of_a_reaper_shows_one() -> None:
    config = configure({"baseKafkaConfig": KAFKA, "dataSource": URL})
    assert SECRET not in repr(config)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_no_log_shows_one(delivery: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each client tells its configuration at DEBUG, and what librdkafka says."""
    caplog.set_level(logging.DEBUG)
    kafka = KAFKA | {"debug": "conf,security,broker"}
    del kafka["ssl.key.password"]
    options = OutboxSettings(
        LEADER_TOPIC="test", KAFKA=kafka, DELIVERY=delivery, DELIVERY_TIMEOUT=0.2
    )
    producer = KafkaProducer(options)
    producer.produce(Batch(records=[record(1)], taken_at=0.0), "leader")
    producer.poll(0.5)
    source = KafkaSource(options, group="g", topics=["orders"])
    source.poll(1, 0.5)
    source.close()
    connects: list[Callable[[], object]] = [
        lambda: KafkaMembership(options).join(_Nobody()),
        lambda: KafkaTransactions(options, fencing_token=None, origin=0).open(),
    ]
    for connect in connects:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
            connect()
        assert SECRET not in f"{caught.value!r}"
    assert "Producing with" in caplog.text
    assert "Consuming with" in caplog.text
    assert "CONF" in caplog.text
    assert SECRET not in caplog.text


class _Nobody:
    """Is never called: no broker answers."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None
