"""
Properties of Kafka's Java client as librdkafka knows them.

Spark reads the topics with the Java client; the driver's requests about topics
go through librdkafka. Only what a connection needs is translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from ..exceptions import ConfigurationError

_SAME: Final = ("bootstrap.servers", "security.protocol", "ssl.key.password")
"""Properties that mean the same in both clients."""

_UNNEEDED: Final = frozenset(
    {
        # The clients agree with the broker on the protocol and the ciphers.
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.truststore.password",
    }
)
"""Properties of SSL that a connection of librdkafka does without."""

_PASSWORD_MODULE: Final = re.compile(r"\s*[\w.]+\.(?:Plain|Scram)LoginModule\s")
"""Login modules that need a user and a password, and nothing else."""

_OPTION: Final = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
"""An option of a login module."""

_MECHANISM: Final = re.compile(r"PLAIN|SCRAM-SHA-(256|512)")

_Names: TypeAlias = dict[str, dict[str, tuple[str, ...]]]
"""Names in librdkafka by names in Java, for each kind of store."""

_PEM: Final[_Names] = {
    "truststore": {
        "ssl.truststore.location": ("ssl.ca.location",),
        "ssl.truststore.certificates": ("ssl.ca.pem",),
    },
    # The key and its certificates are in one file.
    "keystore": {
        "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
        "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
        "ssl.keystore.key": ("ssl.key.pem",),
    },
}
"""Names in librdkafka for the properties of a store of type PEM."""

_PKCS12: Final[_Names] = {
    "truststore": {},
    "keystore": {
        "ssl.keystore.location": ("ssl.keystore.location",),
        "ssl.keystore.password": ("ssl.keystore.password",),
    },
}
"""The same for PKCS12; librdkafka reads only keys from such a file."""


def translate_properties(kafka: Mapping[str, str]) -> dict[str, str]:
    """
    Return librdkafka's properties for a connection to the same brokers.

    Raises:
        ConfigurationError: names the property that has no counterpart.
    """
    found = {name: str(kafka[name]) for name in _SAME if name in kafka}
    found |= _sasl(kafka)
    for store in _PEM:
        found |= _store(kafka, store)
    algorithm = kafka.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        found["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    for name in kafka:
        if name.startswith(("ssl.", "sasl.")) and name not in _KNOWN:
            raise _untranslatable(name)
    return found


def _sasl(kafka: Mapping[str, str]) -> dict[str, str]:
    found = {}
    if mechanism := kafka.get("sasl.mechanism"):
        if not _MECHANISM.fullmatch(mechanism):
            raise _untranslatable("sasl.mechanism")
        found["sasl.mechanism"] = mechanism
    if text := kafka.get("sasl.jaas.config"):
        options = {
            name: re.sub(r"\\(.)", r"\1", double or single) or plain
            for name, double, single, plain in _OPTION.findall(text)
        }
        if not _PASSWORD_MODULE.match(text) or not {"username", "password"} <= {
            *options
        }:
            raise _untranslatable("sasl.jaas.config")
        found["sasl.username"] = options["username"]
        found["sasl.password"] = options["password"]
    return found


def _store(kafka: Mapping[str, str], store: str) -> dict[str, str]:
    """Translate `ssl.truststore.*` or `ssl.keystore.*`."""
    kind = str(kafka.get(f"ssl.{store}.type", "JKS")).upper()
    names = {"PEM": _PEM[store], "PKCS12": _PKCS12[store]}.get(kind, {})
    found: dict[str, str] = {}
    for name, value in kafka.items():
        if not name.startswith(f"ssl.{store}.") or name in _UNNEEDED:
            continue
        if name in names:
            found |= dict.fromkeys(names[name], str(value))
        elif name != f"ssl.{store}.type":
            raise _untranslatable(name)
    return found


_KNOWN: Final = {
    *_SAME,
    *_UNNEEDED,
    *("sasl.mechanism", "sasl.jaas.config"),
    "ssl.endpoint.identification.algorithm",
    *(f"ssl.{store}.type" for store in _PEM),
    *(name for names in (*_PEM.values(), *_PKCS12.values()) for name in names),
}
"""Properties of SSL and SASL that the functions above have handled."""


def _untranslatable(name: str) -> ConfigurationError:
    # Never the value: it may have a password.
    return ConfigurationError(
        f"kafka: {name!r} cannot be translated for librdkafka, which asks Kafka for"
        " the ids of the topics. Use SASL with PLAIN or SCRAM and certificates in PEM"
        " files, or set `topic_ids = false` to read without comparing the ids."
    )
