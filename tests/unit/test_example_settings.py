"""How the example project reads its environment."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.run import NIGHTLY

EXAMPLE = Path(__file__).parents[2] / "example_project"
# By its path: the example's packages are not the tests'.
_MODULE = runpy.run_path(str(EXAMPLE / "config" / "environment.py"))


def outbox_settings(**environment: str) -> Mapping[str, Any]:
    read: Mapping[str, Any] = _MODULE["outbox_settings"](environment)
    return read


def database(**environment: str) -> Mapping[str, Any]:
    read: Mapping[str, Any] = _MODULE["database"](environment)
    return read


def test_only_variables_that_are_set_reach_the_settings() -> None:
    assert outbox_settings(PATH="/bin", OUTBOX_SOURCE="") == {}


def test_what_makes_a_run_of_the_tests_nightly_is_no_setting() -> None:
    """The example inherits these variables from the tests that start it."""
    assert outbox_settings(**NIGHTLY) == {}


def test_variables_are_read_by_the_types_of_the_settings() -> None:
    assert outbox_settings(
        OUTBOX_LEADER_TOPIC="leaders",
        OUTBOX_MAX_IN_FLIGHT="500",
        OUTBOX_SESSION_TIMEOUT="1e1",
        OUTBOX_ARCHIVE="1",
        OUTBOX_LEADER_HEADER="0",
        OUTBOX_ALLOWED_TOPICS="orders, order-audit",
        OUTBOX_TOPIC_POISON_POLICY="audit=park, orders=block-key",
    ) == {
        "LEADER_TOPIC": "leaders",
        "MAX_IN_FLIGHT": 500,
        "SESSION_TIMEOUT": 10.0,
        "ARCHIVE": True,
        "LEADER_HEADER": False,
        "ALLOWED_TOPICS": ("orders", "order-audit"),
        "TOPIC_POISON_POLICY": {"audit": "park", "orders": "block-key"},
    }


def test_a_cluster_is_named_by_variables() -> None:
    assert outbox_settings(
        OUTBOX_CLUSTER_ID="1",
        OUTBOX_CLUSTERS_COUNT="3",
        OUTBOX_MAXIMUM_DELAY="90",
    ) == {"CLUSTER_ID": 1, "CLUSTERS_COUNT": 3, "MAXIMUM_DELAY": 90.0}


def test_the_replicas_of_own_topics_are_variables() -> None:
    assert outbox_settings(
        OUTBOX_TOPIC_REPLICATION_FACTOR="3",
        OUTBOX_TOPIC_MIN_INSYNC_REPLICAS="2",
        OUTBOX_REQUIRE_DURABLE_TOPICS="1",
    ) == {
        "TOPIC_REPLICATION_FACTOR": 3,
        "TOPIC_MIN_INSYNC_REPLICAS": 2,
        "REQUIRE_DURABLE_TOPICS": True,
    }


def test_any_property_of_librdkafka_may_be_set() -> None:
    assert outbox_settings(
        KAFKA_BOOTSTRAP_SERVERS="kafka:9092",
        OUTBOX_KAFKA_SECURITY_PROTOCOL="SASL_SSL",
    )["KAFKA"] == {
        "security.protocol": "SASL_SSL",
        "bootstrap.servers": "kafka:9092",
    }


def test_a_value_may_begin_with_a_dollar_sign() -> None:
    environment = {"OUTBOX_KAFKA_SASL_PASSWORD": "$HOME", "OUTBOX_SOURCE": "$x"}
    assert outbox_settings(**environment) == {
        "KAFKA": {"sasl.password": "$HOME"},
        "SOURCE": "$x",
    }


def test_a_secret_key_may_begin_with_a_dollar_sign() -> None:
    """As one in fifty that Django makes: each process would have another one."""
    code = "from config.settings import SECRET_KEY; print(SECRET_KEY)"
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": "postgres://127.0.0.1:1/none",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DJANGO_SECRET_KEY": "$ecret",
    }
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=EXAMPLE,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "$ecret\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "OUTBOX_MAX_IN_FLIGHT",
            "abc",
            "OUTBOX_MAX_IN_FLIGHT: 'abc' is not a whole number.",
        ),
        (
            "OUTBOX_MAX_IN_FLIGHT",
            "0",
            "OUTBOX_MAX_IN_FLIGHT: 0 must be at least 1.",
        ),
        (
            "OUTBOX_DRAIN_TIMEOUT",
            "2,5",
            "OUTBOX_DRAIN_TIMEOUT: '2,5' is not a number.",
        ),
        ("OUTBOX_DRAIN_TIMEOUT", "inf", "OUTBOX_DRAIN_TIMEOUT: 'inf' is not a number."),
        ("OUTBOX_ARCHIVE", "ture", "OUTBOX_ARCHIVE: 'ture' is neither 1 nor 0."),
        (
            "OUTBOX_SESION_TIMEOUT",
            "9",
            (
                "OUTBOX_SESION_TIMEOUT: there is no such setting. "
                "Did you mean OUTBOX_SESSION_TIMEOUT?"
            ),
        ),
        (
            "OUTBOX_KAFKA_ACKS",
            "1",
            (
                "OUTBOX_KAFKA_*: 'acks' is reserved by django-outbox: durability is "
                "part of the promise. Remove it."
            ),
        ),
    ],
)
def test_a_mistake_is_named_by_its_variable(name: str, text: str, message: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        outbox_settings(**{name: text})
    assert str(caught.value) == message


def test_the_database_is_read_from_its_url() -> None:
    parsed = database(DATABASE_URL="postgres://ada:p%40ss@db.example:5433/shop")
    assert parsed == {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": "db.example",
        "NAME": "shop",
        "PASSWORD": "p@ss",
        "PORT": 5433,
        "USER": "ada",
    }


@pytest.mark.parametrize(
    "url", ["sqlite:///shop.db", "shop", "postgres://ada:secret/word@db.example/shop"]
)
def test_a_wrong_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"^DATABASE_URL must") as caught:
        database(DATABASE_URL=url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"OUTBOX_MAX_IN_FLIGHT": "abc"}, "OUTBOX_MAX_IN_FLIGHT"),
        ({"OUTBOX_HEARTBEAT_TIMEOUT": "5"}, "OUTBOX_HEARTBEAT_TIMEOUT"),
        ({"OUTBOX_MAX_INFLIGHT": "5"}, "OUTBOX_MAX_IN_FLIGHT"),
        ({"BILLING_INTERVAL": "0"}, "BILLING_INTERVAL"),
        ({"DATABASE_URL": ""}, "python -m django_outbox.devstack"),
    ],
)
def test_wrong_settings_end_the_harvester_with_one_line_and_code_2(
    changes: Mapping[str, str], names: str, tmp_path: Path
) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": "postgres://127.0.0.1:1/none",
        # No devstack is published there.
        "XDG_CACHE_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        **changes,
    }
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE / "manage.py"), "runharvester"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert names in line
