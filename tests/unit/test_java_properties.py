"""Properties of Kafka's Java client: for librdkafka, and from the environment."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from django_outbox.exceptions import ConfigurationError
from django_outbox.pipeline.java_properties import translate_properties
from django_outbox.pipeline.pipeline_settings import build, read_environment

SECRET = 'a "quoted" secret; with \\ and ='
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize("module", [PLAIN, SCRAM])
def test_a_user_and_a_password_are_taken_from_jaas(module: str) -> None:
    quoted = SECRET.replace("\\", "\\\\").replace('"', '\\"')
    found = translate_properties(
        {
            "bootstrap.servers": "kafka:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": (
                f'{module} required\n  username=lake password="{quoted}";'
            ),
            "max.poll.records": "5000",
        }
    )
    assert found == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "lake",
        "sasl.password": SECRET,
    }
    # Raises for a property that librdkafka does not know.
    AdminClient({**found, "log_level": 0})


def test_jaas_also_has_single_quotes() -> None:
    text = f"{PLAIN} required username='KEY' password='a \"b\" c' x=\"'\";"
    found = translate_properties({"sasl.jaas.config": text})
    assert found == {"sasl.username": "KEY", "sasl.password": 'a "b" c'}


def test_certificates_in_pem_are_translated() -> None:
    found = translate_properties(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/kafka/ca.pem",
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/etc/kafka/client.pem",
            "ssl.key.password": SECRET,
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "ssl.certificate.location": "/etc/kafka/client.pem",
        "ssl.key.location": "/etc/kafka/client.pem",
        "ssl.key.password": SECRET,
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("name", "kafka"),
    [
        ("sasl.mechanism", {"sasl.mechanism": "GSSAPI"}),
        (
            "sasl.jaas.config",
            {"sasl.jaas.config": f'{SCRAM} required password="{SECRET}";'},
        ),
        (
            "sasl.jaas.config",
            {
                "sasl.jaas.config": (
                    "com.example.OtherLoginModule required"
                    f' username="lake" password="{SECRET}";'
                )
            },
        ),
        (
            "sasl.client.callback.handler.class",
            {"sasl.client.callback.handler.class": "a.B"},
        ),
        ("ssl.truststore.location", {"ssl.truststore.location": "/etc/kafka/ca.jks"}),
        (
            "ssl.truststore.location",
            {
                "ssl.truststore.type": "PKCS12",
                "ssl.truststore.location": "/etc/kafka/ca.p12",
            },
        ),
    ],
)
def test_a_property_without_a_counterpart_is_named(
    name: str, kafka: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        translate_properties(kafka)
    text = str(caught.value)
    assert text.startswith(f"kafka: {name!r} cannot be translated")
    assert "`topic_ids = false`" in text
    assert SECRET not in text


def test_properties_and_secrets_come_from_the_environment() -> None:
    found = read_environment(
        {
            "OUTBOX_PIPELINE_KAFKA_SASL_JAAS_CONFIG": SECRET,
            "OUTBOX_PIPELINE_KAFKA_SSL_KEY_PASSWORD": "",
            "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092",
        }
    )
    assert found == {
        "kafka": {"sasl.jaas.config": SECRET, "bootstrap.servers": "kafka:9092"}
    }
    more_specific = {"OUTBOX_PIPELINE_KAFKA_BOOTSTRAP_SERVERS": "lake-kafka:9092"}
    found |= read_environment({"KAFKA_BOOTSTRAP_SERVERS": "kafka", **more_specific})
    assert found["kafka"] == {"bootstrap.servers": "lake-kafka:9092"}

    reserved = {"OUTBOX_PIPELINE_KAFKA_ISOLATION_LEVEL": "read_uncommitted"}
    with pytest.raises(ConfigurationError, match=r"'isolation\.level' is reserved"):
        build({"lake": "lake", **read_environment(reserved)})
