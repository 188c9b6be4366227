"""A Kafka that asks who somebody is and allows what a page of the docs lists."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.service import free_port
from django_outbox.exceptions import OutboxError

from ..machine import do_without

PAGE: Final = Path(__file__).parents[2] / "docs/operations/security.md"

USERS: Final = ("shop-harvester", "billing", "order-totals", "shop-app")

PASSWORD: Final = "canary-password"
"""Of each user."""

_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class GuardedKafka:
    """
    One broker; clients of its first address may do everything.

    Args:
        certificates: what `make_certificate` has written: users can also sign in over
            TLS then, with SCRAM.
    """

    def __init__(self, certificates: Path | None = None) -> None:
        self._kafka = EmbeddedKafka(progress=print)
        guarded = f"127.0.0.1:{free_port()}"
        modules = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
        self._listen("SASL_PLAINTEXT", guarded)
        sasl = "listener.name.sasl_plaintext"
        self._kafka.settings |= {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            f"{sasl}.plain.sasl.jaas.config": (
                f"{modules}.plain.PlainLoginModule required {users};"
            ),
            # Takes tokens that nobody has signed.
            f"{sasl}.oauthbearer.sasl.jaas.config": (
                f"{modules}.oauthbearer.OAuthBearerLoginModule required"
                ' unsecuredLoginStringClaim_sub="broker";'
            ),
            "authorizer.class.name": (
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            ),
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "false",
        }
        self.guarded = guarded
        """The address at which users sign in."""
        self.encrypted = f"localhost:{free_port()}"
        """The one at which they do so over TLS."""
        self._has_tls = certificates is not None
        if certificates is not None:
            self._encrypt(certificates)

    @property
    def address(self) -> str:
        """The address of those who may do everything."""
        return self._kafka.address

    def start(self) -> None:
        self._kafka.start()
        if self._has_tls:
            self._name_users()

    def close(self) -> None:
        self._kafka.close()

    def allow(self, bindings: list[AclBinding]) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        for done in admin.create_acls(bindings).values():
            done.result(15)

    def signed_in(self, user: str) -> dict[str, str]:
        """Properties of a client of this user."""
        return {
            "bootstrap.servers": self.guarded,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }

    def signed_in_over_tls(self, user: str, *, authority: Path) -> dict[str, str]:
        """Properties of a client that trusts an authority's certificates only."""
        return {
            **self.signed_in(user),
            "bootstrap.servers": self.encrypted,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "ssl.ca.location": str(authority),
        }

    def environment(self, user: str) -> Mapping[str, str]:
        """The same for the processes of the example project."""
        return variables(self.signed_in(user))

    def _listen(self, protocol: str, address: str) -> None:
        settings = self._kafka.settings
        for name, more in (
            ("listeners", f"{protocol}://{address}"),
            ("advertised.listeners", f"{protocol}://{address}"),
            ("listener.security.protocol.map", f"{protocol}:{protocol}"),
        ):
            settings[name] = f"{settings[name]},{more}"

    def _encrypt(self, certificates: Path) -> None:
        self._listen("SASL_SSL", self.encrypted)
        self._kafka.settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "chain.pem"),
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    def _name_users(self) -> None:
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin = AdminClient({"bootstrap.servers": self.address})
        named = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, credential, PASSWORD.encode())
                for user in USERS
            ]
        )
        for done in named.values():
            done.result(15)


@contextmanager
def guarded_kafka(certificates: Path | None = None) -> Iterator[GuardedKafka]:
    """Run one that allows what the page lists, where this machine can."""
    guarded = GuardedKafka(certificates)
    try:
        try:
            guarded.start()
        except OutboxError as error:
            do_without(str(error))
        guarded.allow(acls_of_the_page())
        yield guarded
    finally:
        guarded.close()


def variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Turn properties of a client into variables of the example project."""
    return {
        f"OUTBOX_KAFKA_{name.upper().replace('.', '_')}": text
        for name, text in properties.items()
    }


def acls_of_the_page() -> list[AclBinding]:
    """Return what all commands of the page together allow."""
    lines = re.findall(
        r"^\$ (kafka-acls\.sh .*)$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return [binding for line in lines for binding in _bindings(line)]


def _bindings(line: str) -> Iterator[AclBinding]:
    # Any option that is not here fails the test, as kafka-acls.sh would.
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", default="literal")
    for resource in _RESOURCES:
        name = f"--{resource.replace('_', '-')}"
        parser.add_argument(name, action="append", default=[], dest=resource)
    chosen = parser.parse_args(shlex.split(line)[1:])
    for resource, kind in _RESOURCES.items():
        for name in getattr(chosen, resource):
            for operation in chosen.operation:
                yield AclBinding(
                    kind,
                    name,
                    ResourcePatternType[chosen.resource_pattern_type.upper()],
                    chosen.allow_principal,
                    "*",
                    AclOperation[operation.upper()],
                    AclPermissionType.ALLOW,
                )
