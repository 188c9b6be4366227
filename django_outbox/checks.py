"""
System checks of the settings, the routers and the tables.

`python manage.py check` runs the checks that need no database; with `--database
ALIAS`, and before each `migrate`, Django runs the others, too. Each id is a heading
of docs/reference/checks.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from . import conf
from .clusters.cluster_ids import NEXT_STEP, mismatches, read_numbering
from .exceptions import ConfigurationError
from .message.middleware import load
from .message.record import HIGHEST_ID
from .models import (
    ArchivedRecord,
    ConsumerOffset,
    OutboxRecord,
    ParkedRecord,
    Pause,
    ProcessedMessage,
    Series,
    StagedRecord,
)
from .models.routing import outbox_database
from .settings.kafka_rules import missing_servers, risks
from .settings.options import OutboxSettings
from .settings.problem import Problem, Rule
from .settings.rules import problems

_HINTS: Final = {
    Rule.UNKNOWN: "Correct or remove it; docs/reference/settings.md lists them all.",
    Rule.VALUE: "Correct the value; docs/reference/settings.md explains the setting.",
    Rule.TIMING: "Change one of the two; docs/reference/checks.md explains the rule.",
    Rule.KAFKA_KEY: "docs/reference/checks.md lists all reserved properties.",
    Rule.KAFKA_PROPERTY: "Correct or remove it; see librdkafka's CONFIGURATION.md.",
    Rule.KAFKA_SERVERS: "Set it; harvesters and consumers do not start without it.",
    Rule.TLS_VERIFICATION: "docs/reference/checks.md says when this is acceptable.",
    Rule.CLEAR_TEXT: "docs/reference/checks.md says when this is acceptable.",
}
_MODELS: Final[dict[type[models.Model], str]] = {
    OutboxRecord: "0001_initial",
    ParkedRecord: "0001_initial",
    ArchivedRecord: "0001_initial",
    ProcessedMessage: "0001_initial",
    ConsumerOffset: "0001_initial",
    Series: "0001_initial",
    StagedRecord: "0001_initial",
    Pause: "0002_pause",
}
"""Each model, and the migration that creates its table."""

_COLUMNS: Final = """\
-- outbox: check columns
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""

_ID_COLUMN: Final = """\
-- outbox: check ids
SELECT atttypid::regtype::text, seqrelid::regclass::text, seqcache, seqmax, seqcycle
FROM pg_attribute
LEFT JOIN pg_sequence
    ON seqrelid = pg_get_serial_sequence(attrelid::regclass::text, attname)::regclass
WHERE attrelid = to_regclass(%s) AND attname = 'id'"""


class IdColumn(NamedTuple):
    """The type of the column id and its sequence; None where there is no sequence."""

    type: str
    sequence: str | None
    cache: int | None
    maximum: int | None
    is_cyclic: bool | None


def register_all() -> None:
    """Register every check with Django."""
    register(check_settings, "django_outbox")
    register(check_routers, "django_outbox")
    register(check_tables, "django_outbox", Tags.database)


def check_settings(**_: Any) -> list[CheckMessage]:
    """E001 to E004, E011, E012, W013, W014: wrong or risky settings."""
    return list(_settings_messages())


def _settings_messages() -> Iterator[CheckMessage]:
    try:
        values = conf.settings.raw()
    except conf.OutboxImproperlyConfigured as exc:
        yield Error(str(exc), hint=_HINTS[Rule.VALUE], id="django_outbox.E002")
        return
    found = list(problems(values))
    yield from (_message(Error, "E", problem) for problem in found)
    if not found:
        yield from _kafka_messages(OutboxSettings(**values))
    serializer, middleware = values.get("SERIALIZER"), values.get("MIDDLEWARE", ())
    try:
        if isinstance(serializer, str):
            conf.serializer(serializer)
        if isinstance(middleware, tuple | list):
            load(middleware)
    except ConfigurationError as exc:
        yield Error(
            f"{conf.SETTING}: {exc}",
            hint=_HINTS[Rule.VALUE],
            id="django_outbox.E002",
        )


def _message(
    kind: type[Error | CheckWarning], letter: str, problem: Problem, hint: str = ""
) -> CheckMessage:
    return kind(
        f"{conf.SETTING}: {problem.setting}: {problem.message}",
        hint=_HINTS[problem.rule] + hint,
        id=f"django_outbox.{letter}{problem.rule.value:03d}",
    )


def _kafka_messages(options: OutboxSettings) -> Iterator[CheckMessage]:
    # Import late: a process that only serves requests never loads the Kafka client.
    from .kafka.validation import property_problems

    for problem in property_problems(options):
        yield _message(Error, "E", problem)
    for problem in missing_servers(options):
        yield _message(Error, "E", problem, conf.misnamed())
    for problem in risks(options):
        yield _message(CheckWarning, "W", problem)


def check_routers(**_: Any) -> list[CheckMessage]:
    """W008 and E009: the outbox's database does not suit the business rows."""
    return list(_router_messages())


def _router_messages() -> Iterator[CheckMessage]:
    options = conf.lenient("DATABASE")
    alias = outbox_database(options.DATABASE)
    reason = _unusable(alias)
    if reason:
        yield Error(
            f"The outbox is written to the database {alias!r}, {reason}.",
            hint="Correct the database routers or the setting DATABASE.",
            id="django_outbox.E009",
        )
    homes = {router.db_for_write(model) for model in _business_models()}
    if homes and alias not in homes:
        yield CheckWarning(
            f"The outbox is written to the database {alias!r}, but all other models "
            f"to {', '.join(sorted(homes))}. One transaction cannot write to both.",
            hint="Route the app django_outbox to the database of the business rows, "
            "or pass using= to stash().",
            id="django_outbox.W008",
        )


def _unusable(alias: str) -> str:
    if alias not in connections:
        return "which is not in DATABASES"
    if connections[alias].vendor != "postgresql":
        return f"which is {connections[alias].display_name}, not PostgreSQL"
    if not router.allow_migrate_model(alias, OutboxRecord):
        return "but the routers do not allow its migration there"
    return ""


def _business_models() -> list[type[models.Model]]:
    foreign = ("django.contrib.", "django_outbox")
    return [
        model
        for config in apps.get_app_configs()
        if not config.name.startswith(foreign)
        for model in config.get_models()
        if model._meta.managed
    ]


def check_tables(
    *, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """E005, E006, W007 and W010: the tables are wrong or missing."""
    return [
        message
        for alias in databases or ()
        if connections[alias].vendor == "postgresql"
        and router.allow_migrate_model(alias, OutboxRecord)
        for message in _table_messages(connections[alias])
    ]


def _table_messages(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    for model, migration in _MODELS.items():
        yield from _column_messages(connection, model, migration)
    quoted = connection.ops.quote_name(OutboxRecord._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(_ID_COLUMN, [quoted])
        row = cursor.fetchone()
    if row:
        yield from _id_messages(IdColumn(*row), connection.alias)
        yield from _cluster_messages(connection)


def _column_messages(
    connection: BaseDatabaseWrapper, model: type[models.Model], migration: str
) -> Iterator[CheckMessage]:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [connection.ops.quote_name(table)])
        found = {name for (name,) in cursor.fetchall()}
    if not found:
        # Before the first migrate all tables are missing.
        applied = MigrationRecorder(connection).applied_migrations()
        if ("django_outbox", migration) in applied:
            yield CheckWarning(
                f"The table {table} is not in the database {connection.alias!r}, "
                "although its migration has run.",
                hint="If the setting TABLE was changed after the migration, change it "
                "back: a sequence and functions are named after it, too.",
                id="django_outbox.W007",
            )
        return
    columns = [field.column for field in model._meta.concrete_fields if field.column]
    missing = [column for column in columns if column not in found]
    if missing:
        yield CheckWarning(
            f"The table {table} in the database {connection.alias!r} lacks "
            f"{', '.join(missing)}.",
            hint="Run manage.py migrate; a table made by hand needs these columns.",
            id="django_outbox.W007",
        )


def _id_messages(column: IdColumn, alias: str) -> Iterator[CheckMessage]:
    where = f"in the database {alias!r}"
    if column.cache is not None and column.cache > 1:
        yield Error(
            f"The sequence {column.sequence} {where} caches {column.cache} ids in each "
            "session, so ids do not follow the order of the commits.",
            hint=f"ALTER SEQUENCE {column.sequence} CACHE 1;",
            id="django_outbox.E005",
        )
    table = OutboxRecord._meta.db_table
    if column.type != "bigint":
        yield Error(
            f"{table}.id {where} is {column.type} and will run out of ids.",
            hint=f'ALTER TABLE "{table}" ALTER COLUMN id TYPE bigint;',
            id="django_outbox.E006",
        )
    if column.sequence and (column.is_cyclic or column.maximum != HIGHEST_ID):
        yield Error(
            f"The sequence {column.sequence} {where} ends at {column.maximum}"
            f"{' and restarts' if column.is_cyclic else ''}.",
            hint=f"ALTER SEQUENCE {column.sequence} AS bigint NO MAXVALUE NO CYCLE;",
            id="django_outbox.E006",
        )


def _cluster_messages(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    chosen = conf.schema_settings()
    if chosen.CLUSTERS_COUNT == 1:
        return
    numbering = read_numbering(connection, OutboxRecord._meta.db_table)
    for mismatch in mismatches(
        numbering, cluster=chosen.CLUSTER_ID, count=chosen.CLUSTERS_COUNT
    ):
        yield CheckWarning(
            f"In the database {connection.alias!r}, {mismatch}.",
            hint=NEXT_STEP,
            id="django_outbox.W010",
        )
