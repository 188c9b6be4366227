"""The identity of an outbox: one row that stays, and the command that shows it."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction

from django_outbox.exceptions import DatabaseError
from django_outbox.operations.grants import grants
from django_outbox.postgres import outbox_identity
from django_outbox.postgres.connection import Database
from django_outbox.postgres.marked_table import PostgresOutbox
from django_outbox.postgres.outbox_identity import named_settings, read_identity

from .outbox_command import run


def current() -> str:
    identity = read_identity(connection, "outbox")
    assert identity is not None
    return identity.outbox


@pytest.mark.django_db
@pytest.mark.parametrize("values", ["DEFAULT VALUES", "(is_only) VALUES (false)"])
def test_migrate_makes_one_row_and_there_is_never_a_second(values: str) -> None:
    assert UUID(current()).version == 4
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO outbox_identity {values}")


@pytest.mark.django_db(transaction=True)
def test_a_flush_keeps_it() -> None:
    """Tests of Django's flush after each test, and operators sometimes do."""
    before = current()
    call_command("flush", interactive=False, verbosity=0)
    assert current() == before


@pytest.mark.django_db
def test_the_system_is_server_database_and_schema() -> None:
    identity = read_identity(connection, "outbox")
    assert identity is not None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT system_identifier, (SELECT oid FROM pg_database"
            " WHERE datname = current_database()), 'public'::regnamespace::oid"
            " FROM pg_control_system()"
        )
        assert identity.system == "{}/{}/{}".format(*cursor.fetchone())


@pytest.mark.django_db
def test_the_command_shows_it_and_makes_another_one() -> None:
    before = current()
    name = f"outbox-leader-{before.replace('-', '')[:12]}"
    shown = run("identity")
    assert shown.startswith(f"outbox   {before} in the database ")
    assert f"leader   topic {name}, group {name}\n" in shown
    assert shown in run("status")

    assert before not in run("identity", "--new")

    assert current() != before
    assert current() in run("identity")


@pytest.mark.django_db
def test_an_empty_table_gets_an_identity_again() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM outbox_identity")
    assert "no identity" in run("identity")
    run("identity", "--new")
    assert UUID(current())


@pytest.mark.django_db
def test_the_projects_settings_have_its_names() -> None:
    outbox_identity._outbox_in.cache_clear()
    name = f"outbox-leader-{current().replace('-', '')[:12]}"
    assert named_settings().sources == (name,)
    assert named_settings("default").leader_topic == name


@pytest.mark.parametrize(
    ("spoil", "restore", "text"),
    [
        (
            "ALTER TABLE outbox_identity RENAME TO gone",
            "ALTER TABLE gone RENAME TO outbox_identity",
            "manage.py migrate",
        ),
        (
            "DELETE FROM outbox_identity",
            "INSERT INTO outbox_identity DEFAULT VALUES",
            "outbox identity --new",
        ),
    ],
)
def test_what_is_missing_is_told_with_the_command(
    postgres: psycopg.Connection, database_url: str, spoil: str, restore: str, text: str
) -> None:
    """A harvester waits for it: `migrate` may be running."""
    table = PostgresOutbox(Database({"conninfo": database_url}))
    postgres.execute(spoil.encode())
    try:
        with pytest.raises(DatabaseError, match=text):
            table.identity()
    finally:
        table.close()
        postgres.execute(restore.encode())
        outbox_identity._outbox_in.cache_clear()


READ = b"SELECT outbox::text FROM outbox_identity"


@pytest.mark.parametrize("who", ["harvester", "consumer", "operator"])
def test_all_roles_but_the_writers_may_read_it(
    postgres: psycopg.Connection, database_url: str, role: str, who: str
) -> None:
    for statement in grants("outbox", **{who: role}):
        postgres.execute(statement.encode())
    database = Database({"conninfo": database_url, "options": f"-c role={role}"})
    try:
        with database.session() as session:
            found = session.execute(READ).fetchone()
    finally:
        database.close()
    assert found == postgres.execute(READ).fetchone()


def test_a_writer_may_not_and_is_told_what_to_grant(
    postgres: psycopg.Connection, database_url: str, role: str
) -> None:
    for statement in grants("outbox", app=role):
        postgres.execute(statement.encode())
    database = Database({"conninfo": database_url, "options": f"-c role={role}"})
    with (
        pytest.raises(DatabaseError, match="SELECT on its identity"),
        database.session() as session,
    ):
        session.execute(READ)


@pytest.mark.django_db(transaction=True)
def test_the_operator_may_make_another_one(
    postgres: psycopg.Connection, role: str
) -> None:
    for statement in grants("outbox", operator=role):
        postgres.execute(statement.encode())
    with transaction.atomic(), connection.cursor() as cursor:
        before = current()
        cursor.execute(f"SET LOCAL ROLE {role}")
        run("identity", "--new")
        assert current() != before
        transaction.set_rollback(True)
