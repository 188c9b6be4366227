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
        certificates: what `make_certificate` has written.
    """

    def __init__(self, certificates: Path) -> None:
        super().__init__(progress=lambda _: None)
        self._certificates = certificates
        self.ssl = f"127.0.0.1:{free_port()}"
        self.sasl = f"127.0.0.1:{free_port()}"

    def _format(self) -> None:
        super()._format()
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
            "ssl.keystore.location": str(self._certificates / "chain.pem"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }
        # Of a name that is there twice, Java takes the last.
        with self._settings_file.open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())


def make_certificate(folder: Path, host: str) -> None:
    """
    Let openssl make a certificate for a host that nobody has signed.

    The folder then has `key.pem`, `certificate.pem` and both in `chain.pem`.
    """
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    name = "IP" if host[0].isdigit() else "DNS"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2"),
            *("-keyout", str(key)),
            *("-out", str(certificate)),
            *("-subj", f"/CN={host}", "-addext", f"subjectAltName={name}:{host}"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "chain.pem").write_text(key.read_text() + certificate.read_text())
