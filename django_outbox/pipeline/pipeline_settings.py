"""
What the pipeline needs to know, from a file, a mapping or the environment.

`__main__.py` and the management command build one `PipelineSettings`; all
else gets it, or values of it, as an argument.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ..exceptions import ConfigurationError
from ..settings.field_types import has_type, suggestion
from .payloads.declared import Encoded, find_registry, read_schemas

OWNED_KAFKA_KEYS: Final = {
    "isolation.level": "records of aborted transactions must stay invisible",
    "enable.auto.commit": "the checkpoint holds the offsets",
    "auto.offset.reset": "the checkpoint holds the offsets",
    "key.deserializer": "the lake holds bytes",
    "value.deserializer": "the lake holds bytes",
}
"""Client properties that the pipeline sets itself, each with the reason."""

CLUSTER: Final = re.compile(r"(.+)/(\d+)\Z")
"""The source of one of several clusters: a name and its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """One pipeline: which topics, where its lake is, how Spark runs it."""

    lake: str
    """Folder or URI of the tables and checkpoints; one pipeline for each."""
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties as Java knows them, `bootstrap.servers` among them."""
    topics: tuple[str, ...] = ()
    """The topics to keep."""
    topic_pattern: str = ""
    """Instead of `topics`: a Java regular expression; new topics are found."""
    batch_records: int = 250_000
    """Most records that one batch takes from Kafka."""
    batch_files: int = 16
    """Most files that one batch takes from bronze: a million records, if ingest
    came with full batches of four partitions."""
    fail_on_data_loss: bool = True
    """Stop when Kafka has deleted what was not ingested yet."""
    schemas: Mapping[str, str | Encoded] = field(default_factory=dict)
    """For each topic with JSON values: its columns, as `CREATE TABLE` has them.
    For one with values in Avro or Protobuf: where its schema is."""
    registry: str = ""
    """URL of the schema registry that knows the ids in Confluent's wire format."""
    registry_auth: str = field(default="", repr=False)
    """User and password for it, with a colon between them."""
    database_url: str = field(default="", repr=False)
    """The outbox's database, for `audit` and `doctor`; empty without one."""
    table: str = "outbox"
    """The outbox table."""
    source: str = ""
    """The outbox's own name in the header `outbox-source`; for `audit`."""
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Instead, when the outbox has several clusters: the URL of each one's database,
    by its source, `shop/0` for instance."""
    cores: str = "*"
    """Of this machine, when Spark runs in this process."""
    memory: str = "2g"
    """Of the driver, when Spark runs in this process."""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further Spark properties."""
    bronze_days: int = 0
    """Days that `maintain` keeps what refine has read of bronze; 0 is for ever."""
    silver_days: int = 0
    """Days that it keeps silver, late and quarantine; 0 is for ever."""
    metrics_file: str = ""
    """Where to write Prometheus text after each batch; empty = nowhere."""

    def table_path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.lake}/{table}"

    def outboxes(self) -> Mapping[str, str]:
        """
        Return the URLs of the databases to compare with, by their sources.

        Raises:
            ConfigurationError: of one of several clusters it is not known.
        """
        if missing := ", ".join(name for name, url in self.clusters.items() if not url):
            raise ConfigurationError(
                f"clusters: the database of {missing} is missing. A message is in that"
                " of the cluster that has sent it, so all are asked."
            )
        alone = {self.source: self.database_url} if self.database_url else {}
        return self.clusters or alone

    def checkpoint(self, query: str) -> str:
        """Where a query notes what it has done."""
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
    "DATABASE_URL": "database_url",
    "OUTBOX_TABLE": "table",
    "OUTBOX_SOURCE": "source",
}
"""Variables and the settings that they overrule."""


def read_file(path: Path) -> dict[str, Any]:
    """
    Read settings from TOML.

    Raises:
        ConfigurationError: names the file and what is wrong with it.
    """
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def read_environment(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The settings that the environment has."""
    values: dict[str, Any] = {
        name: text
        for variable, name in ENVIRONMENT.items()
        if (text := environment.get(variable))
    }
    if "topics" in values:
        values["topics"] = (values["topics"],)
    if servers := environment.get("KAFKA_BOOTSTRAP_SERVERS"):
        values["kafka"] = {"bootstrap.servers": servers}
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over each other, the last on top; mappings key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = merged.get(name)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                merged[name] = {**below, **value}
            else:
                merged[name] = value
    return merged


def build(values: Mapping[str, Any]) -> PipelineSettings:
    """
    Turn settings by name into `PipelineSettings`.

    Raises:
        ConfigurationError: with one line for the first problem.
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
            "lake: say where the tables are to lie, a folder or a URI"
            " (OUTBOX_PIPELINE_LAKE, or --lake)."
        )
    # Spark would take a relative path for one of its own working directory.
    lake = str(values["lake"]).rstrip("/")
    lake = lake if "://" in lake else str(Path(lake).absolute())
    # As Spark takes them apart, so that all commands mean the same topics.
    listed = ",".join(map(str, values.get("topics", ()))).split(",")
    topics = tuple(topic.strip() for topic in listed if topic.strip())
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
        raise ConfigurationError("lake: a path with '`' cannot be named in SQL.")
    if settings.topics and settings.topic_pattern:
        raise ConfigurationError("topic_pattern: choose it or `topics`, not both.")
    for name in ("batch_records", "batch_files"):
        if getattr(settings, name) < 1:
            raise ConfigurationError(f"{name}: must be at least 1.")
    for name in ("bronze_days", "silver_days"):
        if getattr(settings, name) < 0:
            raise ConfigurationError(f"{name}: must be 0, for ever, or more.")
    if settings.metrics_file and not Path(settings.metrics_file).parent.is_dir():
        raise ConfigurationError(
            f"metrics_file: the folder of {settings.metrics_file!r} does not exist;"
            " make it, or choose another."
        )
    _check_kafka(settings.kafka)
    _check_clusters(settings.clusters)


def _check_kafka(kafka: Mapping[str, Any]) -> None:
    for key, value in kafka.items():
        if reason := OWNED_KAFKA_KEYS.get(key):
            raise ConfigurationError(
                f"kafka: {key!r} is the pipeline's own: {reason}. Remove it."
            )
        if isinstance(value, list | tuple):
            raise ConfigurationError(
                f"kafka: {key!r}: a {type(value).__name__} must be one text, with"
                " commas in it."
            )


def _check_clusters(clusters: Mapping[str, str]) -> None:
    parts = [CLUSTER.match(name) for name in clusters]
    if not all(parts) or len({part[1] for part in parts if part}) > 1:
        raise ConfigurationError(
            f"clusters: {', '.join(clusters)} must be one name with the number of each"
            " cluster behind it: shop/0, shop/1."
        )
