"""`python -m django_outbox.pipeline` with defaults from the Django project."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections
from django.utils.connection import ConnectionDoesNotExist

from ...conf import settings
from ...exceptions import ConfigurationError
from ...models.routing import outbox_database
from ...pipeline.__main__ import main
from ...pipeline.pipeline_settings import merge
from ...postgres.outbox_identity import named_settings
from ...settings.kafka_rules import servers_of
from ...settings.options import OutboxSettings

TLS_OPTIONS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Those of `OPTIONS` that PostgreSQL's driver for Java has, too."""


class Command(BaseCommand):
    """Runs the pipeline's command line with the project's settings."""

    help = (
        "Load Kafka topics into lake tables with Spark, audit them, and send them"
        " again. `outbox_pipeline` alone lists the commands, `outbox_pipeline COMMAND"
        " --help` the options of a command."
    )
    # The pipeline checks its own settings.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER, metavar="COMMAND ...")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            known = defaults()
        except (ImproperlyConfigured, ConnectionDoesNotExist) as error:
            raise CommandError(str(error), returncode=2) from error
        code = main(
            options["arguments"] or ["--help"],
            defaults=known,
            program="manage.py outbox_pipeline",
        )
        if code:
            raise SystemExit(code)


def defaults() -> dict[str, Any]:
    """Return the project's settings under the pipeline's names."""
    chosen = settings.snapshot()
    alias = outbox_database(chosen.DATABASE)
    servers = servers_of(chosen.KAFKA)
    url = _url(connections[alias].settings_dict)
    known = {
        # Other librdkafka properties may have another name in Java.
        "kafka": {"bootstrap.servers": servers} if servers else {},
        "database_url": url,
        "table": chosen.TABLE,
        "source": _source(chosen),
    }
    if chosen.CLUSTERS_COUNT > 1:
        # Only the user knows the databases of the other clusters.
        known["clusters"] = {
            **dict.fromkeys(chosen.cluster_sources, ""),
            chosen.source: url,
        }
    return merge(known, chosen.PIPELINE)


def _source(chosen: OutboxSettings) -> str:
    """Return this outbox's name in messages; empty if it cannot be determined."""
    try:
        return (chosen if chosen.SOURCE else named_settings()).source
    except (DatabaseError, ConfigurationError):
        # Most commands do not need it; the others report that it is missing.
        return ""


def _url(database: dict[str, Any]) -> str:
    """Return the URL of a database; the pipeline refuses one without a host."""
    options = database.get("OPTIONS") or {}
    user, password, name = (
        quote(str(database.get(part) or ""), safe="")
        for part in ("USER", "PASSWORD", "NAME")
    )
    host = database.get("HOST") or ("" if "service" in options else "127.0.0.1")
    hosts, ports = host.split(","), str(database.get("PORT") or 5432).split(",")
    # As in libpq, one port is for all hosts.
    ports = ports * len(hosts) if len(ports) == 1 else ports
    servers = ",".join(map(_server, hosts, ports))
    tls = {option: options[option] for option in TLS_OPTIONS if option in options}
    query = f"?{urlencode(tls)}" if tls else ""
    return f"postgres://{user}:{password}@{servers}/{name}{query}"


def _server(host: str, port: str) -> str:
    # The name of a socket directory may have colons, too.
    is_ipv6 = ":" in host and not host.startswith("/")
    return f"{f'[{host}]' if is_ipv6 else quote(host, safe='')}:{port}"
