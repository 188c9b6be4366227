"""A Kafka that asks who somebody is and allows what a page of the docs lists."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.service import free_port

PAGE: Final = Path(__file__).parents[2] / "docs/operations/security.md"

USERS: Final = ("shop-harvester", "billing", "order-totals", "shop-app")
"""Each with its name as its password."""

_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class GuardedKafka:
    """One broker; clients of its first address may do everything."""

    def __init__(self) -> None:
        self._kafka = EmbeddedKafka(progress=print)
        guarded = f"127.0.0.1:{free_port()}"
        modules = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{name}"' for name in USERS)
        settings = self._kafka.settings
        for name, more in (
            ("listeners", f"SASL_PLAINTEXT://{guarded}"),
            ("advertised.listeners", f"SASL_PLAINTEXT://{guarded}"),
            ("listener.security.protocol.map", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        ):
            settings[name] = f"{settings[name]},{more}"
        sasl = "listener.name.sasl_plaintext"
        settings |= {
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

    @property
    def address(self) -> str:
        """The address of those who may do everything."""
        return self._kafka.address

    def __enter__(self) -> GuardedKafka:
        self._kafka.start()
        return self

    def __exit__(self, *exc: object) -> None:
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
            "sasl.password": user,
        }

    def environment(self, user: str) -> Mapping[str, str]:
        """The same for the processes of the example project."""
        return {
            f"OUTBOX_KAFKA_{name.upper().replace('.', '_')}": text
            for name, text in self.signed_in(user).items()
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
