"""A broker with one listener of each kind of security, and certificates for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from django_outbox.devstack.embedded_kafka import EmbeddedKafka
from django_outbox.devstack.service import free_port

USER: Final = "outbox"
PASSWORD: Final = "right-password"


class SecuredKafka(EmbeddedKafka):
    """
    An embedded Kafka that listens for TLS and SASL, too.

    Args:
        certificates: a folder with `key.pem` and `certificate.pem`.
    """

    def __init__(self, certificates: Path) -> None:
        super().__init__(progress=lambda _: None)
        self._certificates = certificates
        self.ssl = f"127.0.0.1:{free_port()}"
        self.sasl = f"127.0.0.1:{free_port()}"

    def _format(self) -> None:
        super()._format()
        chain = self._certificates / "chain.pem"
        parts = ("key.pem", "certificate.pem")
        chain.write_text(
            "".join((self._certificates / part).read_text() for part in parts)
        )
        controller = f"127.0.0.1:{self._controller_port}"
        advertised = (
            f"PLAINTEXT://{self.address},SSL://{self.ssl},SASL_PLAINTEXT://{self.sasl}"
        )
        login = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{USER}="{PASSWORD}";'
        )
        settings = {
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(chain),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }
        # Of a name that is there twice, Java takes the last.
        with self._settings_file.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())


def make_certificate(folder: Path, host: str) -> None:
    """Let openssl make a key, and a certificate for a host that nobody has signed."""
    name = "IP" if host[0].isdigit() else "DNS"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2"),
            *("-keyout", str(folder / "key.pem")),
            *("-out", str(folder / "certificate.pem")),
            *("-subj", f"/CN={host}", "-addext", f"subjectAltName={name}:{host}"),
        ],
        check=True,
        capture_output=True,
    )
