"""
Settings of the pipeline, from a file, a mapping or the environment.

`build()` validates them once; other code takes the resulting value as an
argument and never reads the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ..exceptions import ConfigurationError
from ..settings.field_types import has_type, suggestion
from .payloads.declared import Encoded, find_registry, read_schemas
from .payloads.wrapping import read_keys

OWNED_KAFKA_KEYS: Final = {
    "isolation.level": "records of aborted transactions must stay invisible",
    "enable.auto.commit": "the checkpoint holds the offsets",
    "auto.offset.reset": "the checkpoint holds the offsets",
    "key.deserializer": "the lake holds bytes",
    "value.deserializer": "the lake holds bytes",
}
"""Client properties that the pipeline reserves, each with the reason."""

NO_TOPICS: Final = (
    "topics: set at least one, or a `topic_pattern` (OUTBOX_PIPELINE_TOPICS, or"
    " --topic)."
)
"""Why a command that reads topics cannot start."""

_URI: Final = re.compile(r"\w[\w+.-]+:")
"""How a URI begins; Hadoop also takes those with one slash, `dbfs:/lake`."""

CLUSTER: Final = re.compile(r"(.+)/(\d+)\Z")
"""The source of one of several clusters: the outbox's name and the cluster id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """One pipeline: its topics, its lake, and how Spark runs."""

    lake: str
    """Folder or URI of the tables and checkpoints; not shared between pipelines."""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of Kafka's Java client, including `bootstrap.servers`."""
    topics: tuple[str, ...] = ()
    """Topics to read."""
    topic_pattern: str = ""
    """Instead of `topics`: a Java regular expression; new topics are discovered."""
    batch_records: int = 250_000
    """Maximum number of records that one batch reads from Kafka."""
    batch_files: int = 1000
    """Maximum number of files that one batch reads from bronze; it also ends at
    256 MB of files."""
    fail_on_data_loss: bool = True
    """Stop if Kafka has deleted records that were not ingested."""
    topic_ids: bool = True
    """Compare the ids of the topics with those that were read before. Needs
    confluent-kafka and a connection to Kafka where the command runs."""
    schemas: Mapping[str, str | Encoded] = field(default_factory=dict)
    """For each topic with JSON values: its columns in the syntax of `CREATE TABLE`.
    For a topic with Avro or Protobuf values: where its schema is."""
    typed_tables: bool = False
    """Also write a table for each topic of `schemas`, with its values as a column."""
    registry: str = ""
    """URL of the schema registry for ids in Confluent's wire format."""
    registry_auth: str = field(default="", repr=False)
    """`user:password` for the registry."""
    unwrap: bool = False
    """Check values as they were before payload classes compressed, encrypted or saved
    them."""
    payload_keys: str = field(default="", repr=False)
    """Keys of encrypted values, and master keys of `subject_keys`: `id:key`, with white
    space between them."""
    subject_keys: str = ""
    """Table with the keys of subjects, in the outbox's database."""
    claim_checks: str = ""
    """Folder or URI of the storage with the values of claim checks."""
    database_url: str = field(default="", repr=False)
    """The outbox's database, for `audit`, `counts`, `backfill` and `doctor`; empty =
    none."""
    table: str = "outbox"
    """Name of the outbox table."""
    source: str = ""
    """The outbox's name in the header `outbox-source`, for `audit`."""
    epochs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each source whose ids began again, because its database was restored: when
    that was, in ISO 8601."""
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Instead of `database_url`, for an outbox with several clusters: the URL of each
    cluster's database by its source, such as `shop/0`."""
    cores: str = "*"
    """Cores to use when Spark runs in this process."""
    memory: str = "2g"
    """Memory of the driver when Spark runs in this process."""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further Spark properties."""
    bronze_days: int = 0
    """Days that `maintain` keeps rows of bronze that refine has read; 0 = no limit."""
    silver_days: int = 0
    """Days that `maintain` keeps rows of silver, late and quarantine; 0 = no limit."""
    deletion_vectors: bool = True
    """Create `latest` with deletion vectors, which not every engine can read."""
    change_data_feed: bool = False
    """Create `latest` with Delta's change data feed."""
    metrics_file: str = ""
    """File for Prometheus text, written after each batch; empty = none."""

    def require_brokers(self) -> None:
        """
        Refuse to go on without brokers.

        Raises:
            ConfigurationError: none are configured.
        """
        if not self.kafka.get("bootstrap.servers"):
            raise ConfigurationError(
                "kafka: 'bootstrap.servers' is missing (KAFKA_BOOTSTRAP_SERVERS)."
            )

    def table_path(self, table: str) -> str:
        """Return the path of a table."""
        return f"{self.lake}/{table}"

    def outboxes(self) -> Mapping[str, str]:
        """
        Return the URLs of the databases to compare with, by source.

        Raises:
            ConfigurationError: the URL of a cluster is missing.
        """
        if missing := ", ".join(name for name, url in self.clusters.items() if not url):
            raise ConfigurationError(
                f"clusters: the database URL of {missing} is missing. Each cluster"
                " archives only the messages that it sent, so all are needed."
            )
        alone = {self.source: self.database_url} if self.database_url else {}
        return self.clusters or alone

    def checkpoint(self, query: str) -> str:
        """Return the path of a query's checkpoint."""
        return f"{self.lake}/_checkpoints/{query}"


ENVIRONMENT: Final = {
    "OUTBOX_PIPELINE_LAKE": "lake",
    "OUTBOX_PIPELINE_TOPICS": "topics",
    "OUTBOX_PIPELINE_TOPIC_PATTERN": "topic_pattern",
    "OUTBOX_PIPELINE_CORES": "cores",
    "OUTBOX_PIPELINE_MEMORY": "memory",
    "OUTBOX_PIPELINE_METRICS_FILE": "metrics_file",
    "OUTBOX_PIPELINE_REGISTRY": "registry",
    "OUTBOX_PIPELINE_REGISTRY_AUTH": "registry_auth",
    "OUTBOX_PIPELINE_PAYLOAD_KEYS": "payload_keys",
    "OUTBOX_PIPELINE_CLAIM_CHECKS": "claim_checks",
    "DATABASE_URL": "database_url",
    "OUTBOX_TABLE": "table",
    "OUTBOX_SOURCE": "source",
}
"""Environment variables and the settings that they override."""

KAFKA_VARIABLE: Final = "OUTBOX_PIPELINE_KAFKA_"
"""Prefix of environment variables with properties of `kafka`: the rest of the name in
lower case, with `.` for `_`."""


def read_file(path: Path) -> dict[str, Any]:
    """
    Read settings from a TOML file.

    Raises:
        ConfigurationError: the file cannot be read or parsed.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return values | {
        name: dict(_undivided(values[name]))
        for name in ("kafka", "spark")
        if isinstance(values.get(name), dict)
    }


def _undivided(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield properties by their whole names, which TOML divides if not quoted."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _undivided(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def read_environment(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the settings from environment variables."""
    values: dict[str, Any] = {
        name: text
        for variable, name in ENVIRONMENT.items()
        if (text := environment.get(variable))
    }
    if "topics" in values:
        values["topics"] = (values["topics"],)
    kafka = {
        variable.removeprefix(KAFKA_VARIABLE).lower().replace("_", "."): text
        for variable, text in environment.items()
        if variable.startswith(KAFKA_VARIABLE) and text
    }
    if servers := environment.get("KAFKA_BOOTSTRAP_SERVERS"):
        kafka.setdefault("bootstrap.servers", servers)
    if kafka:
        values["kafka"] = kafka
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings, the last one wins; mappings are merged key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = merged.get(name)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                merged[name] = {**below, **value}
            else:
                merged[name] = value
    return merged


def split_topics(values: Iterable[object]) -> tuple[str, ...]:
    """Split lists of topics as Spark does, so that all commands mean the same ones."""
    listed = ",".join(map(str, values)).split(",")
    # Named twice, a topic is read once.
    return tuple(dict.fromkeys(topic.strip() for topic in listed if topic.strip()))


def build(values: Mapping[str, Any]) -> PipelineSettings:
    """
    Validate settings by name and return `PipelineSettings`.

    Raises:
        ConfigurationError: one line about the first problem.
    """
    known = {f.name: f.type for f in fields(PipelineSettings)}
    for name, value in values.items():
        if name not in known:
            raise ConfigurationError(
                f"{name}: there is no such setting.{suggestion(name, known)}"
            )
        _check_type(name, value, str(known[name]))
    if not values.get("lake"):
        raise ConfigurationError(
            "lake: set the folder or URI of the tables (OUTBOX_PIPELINE_LAKE, or"
            " --lake)."
        )
    # Spark would resolve a relative path in its own working directory.
    lake = str(values["lake"]).rstrip("/")
    lake = lake if _URI.match(lake) else str(Path(lake).absolute())
    topics = split_topics(values.get("topics", ()))
    registry = find_registry(
        values.get("registry", ""), values.get("registry_auth", "")
    )
    schemas = read_schemas(values.get("schemas", {}), registry)
    settings = PipelineSettings(
        **{**values, "lake": lake, "topics": topics, "schemas": schemas}
    )
    _check(settings)
    return settings


def _check_type(name: str, value: Any, annotation: str) -> None:
    if not has_type(value, annotation):
        # Never the value: it may be a password, or a URL with one.
        shown = type(value).__name__
        raise ConfigurationError(f"{name}: a {shown} is not of type {annotation}.")


def _check(settings: PipelineSettings) -> None:
    if "`" in settings.lake:
        raise ConfigurationError("lake: the path must not contain '`'.")
    if settings.topics and settings.topic_pattern:
        raise ConfigurationError("topic_pattern: set it or `topics`, not both.")
    for name in ("batch_records", "batch_files"):
        if getattr(settings, name) < 1:
            raise ConfigurationError(f"{name}: must be at least 1.")
    for name in ("bronze_days", "silver_days"):
        if getattr(settings, name) < 0:
            raise ConfigurationError(f"{name}: must be 0 (no limit) or more.")
    folder = Path(settings.metrics_file).parent
    if settings.metrics_file and not os.access(folder, os.W_OK):
        raise ConfigurationError(
            f"metrics_file: the folder of {settings.metrics_file!r} does not exist, or"
            " this user cannot write there; create it or choose another."
        )
    if settings.typed_tables and settings.unwrap:
        raise ConfigurationError(
            "typed_tables: it would store what `unwrap` decrypts. Set one of them."
        )
    read_keys(settings.payload_keys)
    _check_epochs(settings.epochs)
    _check_kafka(settings.kafka)
    _check_clusters(settings.clusters)


def _check_epochs(epochs: Mapping[str, Any]) -> None:
    for source, moments in epochs.items():
        for moment in moments if isinstance(moments, list | tuple) else [moments]:
            try:
                is_complete = datetime.fromisoformat(moment).tzinfo is not None
            except (TypeError, ValueError):
                is_complete = False
            if isinstance(moments, str) or not is_complete:
                raise ConfigurationError(
                    f"epochs: {moment!r} of {source!r} must be in a list of times with"
                    ' their offset from UTC, such as ["2026-01-31T12:00Z"].'
                )


def _check_kafka(kafka: Mapping[str, Any]) -> None:
    for key, value in kafka.items():
        if reason := OWNED_KAFKA_KEYS.get(key):
            raise ConfigurationError(
                f"kafka: {key!r} is reserved: {reason}. Remove it."
            )
        if isinstance(value, list | tuple):
            raise ConfigurationError(
                f"kafka: {key!r} is a {type(value).__name__}; write one string with"
                " commas."
            )


def _check_clusters(clusters: Mapping[str, str]) -> None:
    parts = [CLUSTER.match(name) for name in clusters]
    if not all(parts) or len({part[1] for part in parts if part}) > 1:
        raise ConfigurationError(
            f"clusters: {', '.join(clusters)} must be one name followed by the id of"
            " each cluster: shop/0, shop/1."
        )
