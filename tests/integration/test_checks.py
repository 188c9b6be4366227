"""System checks that look at the table: each is broken once."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from django_outbox import checks
from django_outbox.checks import check_tables

pytestmark = pytest.mark.django_db


def break_it(*statements: str) -> list[CheckMessage]:
    """Change the schema, then check it."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    return check_tables(databases=["default"])


def only(messages: list[CheckMessage], identity: str) -> CheckMessage:
    """Return the only message, which must have this id and a hint."""
    (message,) = messages
    assert message.id == f"django_outbox.{identity}"
    assert message.hint
    return message


def test_a_migrated_table_passes() -> None:
    assert check_tables(databases=["default"]) == []
    call_command("check", databases=["default"], fail_level="WARNING")


def test_without_a_database_nothing_is_asked() -> None:
    assert check_tables(databases=None) == []


def test_a_sequence_that_caches_ids_is_an_error() -> None:
    message = only(break_it("ALTER SEQUENCE outbox_id_seq CACHE 32"), "E005")
    assert "caches 32 ids" in message.msg
    assert break_it(str(message.hint)) == []


@pytest.mark.parametrize(
    "change", ["MAXVALUE 2147483647", "CYCLE", "AS integer"], ids=str
)
def test_a_sequence_that_ends_is_an_error(change: str) -> None:
    message = only(break_it(f"ALTER SEQUENCE outbox_id_seq {change}"), "E006")
    assert "ends at" in message.msg
    assert break_it(str(message.hint)) == []


def test_an_id_of_four_bytes_is_an_error() -> None:
    """A thousand rows a second use it up in 25 days."""
    messages = break_it("ALTER TABLE outbox ALTER COLUMN id TYPE integer")
    assert [message.id for message in messages] == ["django_outbox.E006"] * 2
    assert "is integer" in messages[0].msg
    assert "ends at 2147483647" in messages[1].msg
    assert break_it(*(str(message.hint) for message in messages)) == []


def test_a_table_from_goharvests_own_script_passes_but_for_its_columns() -> None:
    messages = break_it(
        "DROP TABLE outbox",
        "CREATE TABLE outbox (id BIGSERIAL PRIMARY KEY,"
        " create_time TIMESTAMP WITH TIME ZONE NOT NULL,"
        " kafka_topic VARCHAR(249) NOT NULL, kafka_key VARCHAR(100) NOT NULL,"
        " kafka_value VARCHAR(10000), kafka_header_keys TEXT[] NOT NULL,"
        " kafka_header_values TEXT[] NOT NULL, leader_id UUID)",
    )
    message = only(messages, "W007")
    assert "message_id" in message.msg
    assert "kafka_topic" not in message.msg


def test_a_table_that_is_gone_is_a_warning() -> None:
    """As after a change of the setting TABLE."""
    message = only(break_it("ALTER TABLE outbox RENAME TO old"), "W007")
    assert "is not in the database 'default'" in message.msg


@pytest.mark.parametrize("table", ["outbox_staged", "outbox_pauses"])
def test_after_its_migration_a_table_must_be_there(table: str) -> None:
    message = only(break_it(f"DROP TABLE {table}"), "W007")
    assert f"{table} is not in the database" in message.msg


def test_before_its_migration_nothing_is_said() -> None:
    assert [] == break_it(
        "DROP TABLE outbox_pauses",
        "DELETE FROM django_migrations WHERE name = '0002_pause'",
    )


def test_the_tables_of_all_models_are_looked_at() -> None:
    models = apps.get_app_config("django_outbox").get_models()
    assert {*checks._MODELS} == {model for model in models if model._meta.managed}


def test_before_the_first_migrate_nothing_is_said() -> None:
    messages = break_it(
        "DROP TABLE outbox, outbox_parked, outbox_archive",
        "DELETE FROM django_migrations WHERE app = 'django_outbox'",
    )
    assert messages == []


def test_an_empty_database_passes() -> None:
    """The checks run before the very first migrate."""
    assert break_it("CREATE SCHEMA nothing", "SET LOCAL search_path TO nothing") == []


class _NotHere:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "django_outbox" else None


def test_a_database_without_the_outbox_is_not_looked_at(settings: Settings) -> None:
    settings.DATABASE_ROUTERS = [_NotHere()]
    assert break_it("ALTER SEQUENCE outbox_id_seq CACHE 32") == []
