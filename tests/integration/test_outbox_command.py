"""`manage.py outbox`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_outbox import Message, consumer, open_series, stash_many
from django_outbox.consuming import handlers
from django_outbox.management.answer import Answer
from django_outbox.management.commands.outbox import Command
from django_outbox.management.identity_verb import report
from django_outbox.management.series_verb import close_series
from django_outbox.models import (
    ArchivedRecord,
    ConsumerOffset,
    OutboxRecord,
    ParkedRecord,
    ProcessedMessage,
    Series,
    StagedRecord,
)
from django_outbox.operations import live_reading

from .outbox_command import run
from .transactions import wait_until_blocked

pytestmark = pytest.mark.django_db


@pytest.fixture
def some_of_each() -> None:
    """One row that waits, one that is blocked, two that are parked; three staged."""
    open_series("order-17").stash_many([Message("t", key="secret", value=None)] * 2)
    stash_many([Message("t", key="secret", value=None)], not_before=timedelta(hours=1))
    OutboxRecord.objects.create(
        id=9_000_010,
        kafka_topic="orders",
        kafka_key="secret",
        kafka_value="secret",
        create_time=Now() - timedelta(seconds=5),
    )
    OutboxRecord.objects.create(
        id=9_000_011,
        kafka_topic="orders",
        kafka_key="secret",
        attempts=4,
        last_error="TOPIC_AUTHORIZATION_FAILED\nfaked line",
    )
    for number in (7, 8):
        ParkedRecord.objects.create(
            parked_id=number,
            id=number + 4_000,
            kafka_topic="t",
            kafka_key="secret",
            attempts=number - 6,
            last_error="" if number == 7 else "\x1b[31mMSG_SIZE_TOO_LARGE\nforged",
            parked_at=Now() - timedelta(minutes=5),
        )


@pytest.mark.usefixtures("some_of_each")
def test_status_for_people() -> None:
    shown = run("status")
    outbox, leader, waiting, *lines = shown.splitlines()
    assert outbox.startswith("outbox   ")
    assert leader.startswith("leader   topic ")
    assert waiting.startswith("waiting  2 records, oldest 5.")
    assert lines == [
        "staged   2 records in 1 open series, 1 for later",
        "parked   2 records",
        "  7  record 4007 to t, 1 attempt, parked 5 min ago: no error recorded",
        r"  8  record 4008 to t, 2 attempts, parked 5 min ago: "
        r"\x1b[31mMSG_SIZE_TOO_LARGE\nforged",
        "blocked  1 record",
        r"  record 9000011 to orders, 4 attempts: TOPIC_AUTHORIZATION_FAILED\n"
        "faked line",
    ]
    assert "secret" not in shown


def test_status_lists_a_bounded_number() -> None:
    for number in range(37):
        ParkedRecord.objects.create(id=number, kafka_topic="t", kafka_key="k")
    for number in range(21):
        OutboxRecord.objects.create(
            id=9_000_000 + number, kafka_topic="t", kafka_key="k", attempts=1
        )
    lines = run("status").splitlines()
    parked, blocked = lines.index("parked   37 records"), -22
    assert lines[parked + 21] == "  and 17 more"
    assert lines[blocked] == "blocked  20+ records"
    assert lines[-1] == "  and more"
    assert len(lines) == 4 + 22 + 22


def test_status_says_where_a_number_is_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_reading, "MAX_COUNTED", 21)
    monkeypatch.setattr(live_reading, "SAMPLE", 1)
    for number in range(23):
        ParkedRecord.objects.create(id=number, kafka_topic="t", kafka_key="k")
    open_series("order-17").stash("t", key="k", value=None)
    stash_many([Message("t", key="k", value=None)] * 22, not_before=timedelta(hours=1))
    for attempts in (0, 1):
        OutboxRecord.objects.create(
            id=9_000_000 + attempts, kafka_topic="t", kafka_key="k", attempts=attempts
        )
    lines = run("status").splitlines()
    assert "staged   1 record in 1 open series, 21+ for later" in lines
    parked = lines.index("parked   21+ records")
    # More than 20 are not listed.
    assert lines[parked + 21] == "  and at least 1 more"
    assert lines[-1] == "blocked  0 records among the oldest 1"
    shown = json.loads(run("status", "--json"))
    assert shown["staged"] == {
        "series": 1,
        "in_series": 1,
        "delayed": 21,
        "is_capped": True,
    }
    assert (shown["parked"]["records"], shown["parked"]["is_capped"]) == (21, True)
    assert shown["blocked"] == {"is_capped": False, "rows": []}


def test_every_query_of_status_is_bounded() -> None:
    tables = ("outbox", "outbox_staged", "outbox_series", "outbox_parked")
    with CaptureQueriesContext(connection) as queries:
        run("status")
    reads = [
        query["sql"]
        for query in queries
        if any(f'FROM "{table}"' in query["sql"] for table in tables)
    ]
    assert len(reads) == 8, reads
    assert all("LIMIT" in sql for sql in reads), reads


def test_status_counts_few_rows_of_large_tables_by_an_index() -> None:
    with CaptureQueriesContext(connection) as queries:
        run("status")
    counts = [
        query["sql"]
        for query in queries
        if 'FROM "outbox_series"' in query["sql"]
        or 'FROM "outbox_staged"' in query["sql"]
    ]
    indexes = ("outbox_series_due", "outbox_staged_series", "outbox_staged_due")
    with connection.cursor() as cursor:
        # A small table is scanned and sorted otherwise.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_sort = off")
        for statement, index in zip(counts, indexes, strict=True):
            cursor.execute(f"EXPLAIN {statement}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert index in plan, plan


@pytest.mark.usefixtures("some_of_each")
def test_status_for_machines() -> None:
    shown = json.loads(run("status", "--json"))
    assert 5 <= shown["backlog"].pop("oldest_age") < 60
    assert shown.pop("identity") == report("default")
    assert [300 <= row.pop("age") < 360 for row in shown["parked"]["rows"]] == [
        True
    ] * 2
    assert shown == {
        "database": "default",
        "table": "outbox",
        "backlog": {"records": 2, "is_capped": False},
        "staged": {"series": 1, "in_series": 2, "delayed": 1, "is_capped": False},
        "paused": [],
        "parked": {
            "records": 2,
            "is_capped": False,
            "rows": [
                {
                    "parked_id": 7,
                    "id": 4007,
                    "kafka_topic": "t",
                    "attempts": 1,
                    "last_error": "",
                },
                {
                    "parked_id": 8,
                    "id": 4008,
                    "kafka_topic": "t",
                    "attempts": 2,
                    "last_error": "\x1b[31mMSG_SIZE_TOO_LARGE\nforged",
                },
            ],
        },
        "blocked": {
            "is_capped": False,
            "rows": [
                {
                    "id": 9_000_011,
                    "kafka_topic": "orders",
                    "attempts": 4,
                    "last_error": "TOPIC_AUTHORIZATION_FAILED\nfaked line",
                }
            ],
        },
    }


@pytest.mark.usefixtures("some_of_each")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["release", "7"], {"released": 1, "wanted": 1}),
        (["park", "9000011"], {"parked": 1, "wanted": 1}),
        (
            ["series"],
            {
                "is_capped": False,
                "series": [
                    {
                        "name": "order-17",
                        "staged": 2,
                        "expected": None,
                        "expires_at": None,
                        "on_timeout": "park",
                    }
                ],
            },
        ),
        (
            ["series", "release", "order-17"],
            {"action": "release", "series": [{"name": "order-17", "messages": 2}]},
        ),
        (
            ["series", "discard", "order-17", "--yes"],
            {"action": "discard", "series": [{"name": "order-17", "messages": 2}]},
        ),
        (
            ["prune", "--older-than", "1d", "--yes"],
            {"table": "outbox_archive", "pruned": 0},
        ),
        (
            ["prune", "--older-than", "1d", "--processed", "--yes"],
            {"table": "outbox_processed", "pruned": 0},
        ),
        (["cluster", "init", "--dry-run"], {"statements": []}),
    ],
)
def test_each_verb_has_one_json_document(
    arguments: list[str], expected: dict[str, object]
) -> None:
    assert json.loads(run(*arguments, "--json")) == {"database": "default"} | expected


def test_grants_for_machines() -> None:
    shown = json.loads(run("grants", "--app", "a", "--json"))
    assert shown["statements"] == run("grants", "--app", "a").splitlines()


@pytest.mark.parametrize("option", [[], ["--check"]])
def test_a_cluster_for_machines(option: list[str]) -> None:
    shown = json.loads(run("cluster", "init", *option, "--json"))
    assert (shown["cluster"], shown["count"], shown["increment"]) == (0, 1, 1)


@pytest.mark.usefixtures("some_of_each")
def test_what_was_done_before_an_error_is_in_the_document() -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="there is no 'nobody'"):
        call_command(
            *("outbox", "series", "release", "order-17", "nobody", "--json"), stdout=out
        )
    shown = json.loads(out.getvalue())
    assert shown["series"] == [{"name": "order-17", "messages": 2}]
    assert "there is no 'nobody'" in shown["error"]


@pytest.mark.parametrize("verb", ["status", "series"])
@pytest.mark.parametrize(
    "options",
    [
        ["--verbosity", "2"],
        ["-v", "0"],
        ["--traceback"],
        ["--no-color"],
        ["--force-color"],
        ["--skip-checks"],
        ["--settings", "tests.settings"],
        ["--pythonpath", "."],
    ],
)
def test_options_of_django_stand_before_and_behind_a_verb(
    verb: str, options: list[str]
) -> None:
    parser = Command().create_parser("manage.py", "outbox")
    before = parser.parse_args([*options, verb])
    behind = parser.parse_args([verb, *options])
    assert before == behind
    assert before != parser.parse_args([verb])
    assert run(verb, *options)


def test_an_option_before_the_verb_outlives_it() -> None:
    parser = Command().create_parser("manage.py", "outbox")
    assert parser.parse_args(["-v", "3", "status", "--no-color"]).verbosity == 3


@pytest.mark.usefixtures("some_of_each")
def test_a_forged_name_of_a_series_is_one_line() -> None:
    forged = "a\n2026-11-23 leader_acquired\x1b[2J\u202e"
    open_series(forged).stash("t", key="k", value=None)
    escaped = r"'a\n2026-11-23 leader_acquired\x1b[2J\u202e'"
    assert run("series").splitlines()[1] == f"{escaped}  1 staged, no time-out"
    assert run("series", "release", forged) == f"{escaped}  1 message in the outbox\n"


@pytest.mark.django_db
def test_park_moves_blocked_records_as_they_are() -> None:
    blocked = OutboxRecord.objects.create(
        kafka_topic="orders",
        kafka_key="k",
        kafka_value="v",
        attempts=3,
        last_error="MSG_SIZE_TOO_LARGE: too large",
    )
    waiting = OutboxRecord.objects.create(kafka_topic="orders", kafka_key="k")

    assert run("park", str(blocked.id)) == "1 record parked\n"
    parked = ParkedRecord.objects.get(id=blocked.id)
    for name in ("message_id", "create_time", "kafka_value", "attempts", "last_error"):
        assert getattr(parked, name) == getattr(blocked, name), name
    with pytest.raises(CommandError, match="2 of 2 are not blocked"):
        run("park", str(waiting.id), str(blocked.id))
    assert list(OutboxRecord.objects.all()) == [waiting]
    assert ParkedRecord.objects.filter(parked_id=parked.parked_id).release() == 1
    assert set(OutboxRecord.objects.all()) == {blocked, waiting}


@pytest.mark.usefixtures("some_of_each")
def test_release_of_one() -> None:
    assert run("release", "7", "7") == "1 record back in the outbox\n"
    assert ParkedRecord.objects.get().parked_id == 8
    assert OutboxRecord.objects.filter(id=4007).exists()


@pytest.mark.usefixtures("some_of_each")
def test_release_of_all() -> None:
    assert run("release", "--all") == "2 records back in the outbox\n"
    assert not ParkedRecord.objects.exists()


@pytest.mark.usefixtures("some_of_each")
def test_release_of_all_says_what_stays() -> None:
    OutboxRecord.objects.create(id=4007, kafka_topic="t", kafka_key="k")
    with pytest.raises(CommandError, match="1 of 2 are not parked, or another row"):
        run("release", "--all")
    assert ParkedRecord.objects.get().parked_id == 7


@pytest.mark.usefixtures("some_of_each")
def test_release_of_one_that_is_not_parked_says_so() -> None:
    with pytest.raises(CommandError, match="1 of 2 are not parked"):
        run("release", "7", "99")
    assert OutboxRecord.objects.filter(id=4007).exists()


@pytest.mark.parametrize("arguments", [["release"], ["release", "1", "--all"]])
def test_release_needs_ids_or_all(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=r"Give the ids of parked .* or --all"):
        run(*arguments)


@pytest.mark.usefixtures("some_of_each")
def test_series_lists_those_that_are_open() -> None:
    open_series("done", expected=1).stash("t", key="k", value=None)
    open_series("later", expected=3, timeout=60, on_timeout="discard")
    first, second = run("series").splitlines()
    assert first == "'order-17'  2 staged, no time-out"
    assert second.startswith("'later'  0 of 3 staged, discard at 20")


def test_series_without_any_says_so() -> None:
    assert run("series", "list") == "no series is open\n"


@pytest.mark.usefixtures("some_of_each")
def test_series_can_be_released_and_discarded() -> None:
    open_series("other").stash("t", key="k", value=None)
    assert (
        run("series", "release", "order-17") == "'order-17'  2 messages in the outbox\n"
    )
    assert (
        run("series", "discard", "other", "--yes") == "'other'  1 message discarded\n"
    )
    assert (OutboxRecord.objects.count(), StagedRecord.objects.count()) == (4, 1)
    with pytest.raises(CommandError, match="'order-17' was released at"):
        run("series", "discard", "order-17", "--yes")
    assert Series.objects.filter(state="released").count() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["series", "release"], "Name the series to release"),
        (["series", "discard", "nobody", "--yes"], "there is no 'nobody'"),
        (["series", "release", ""], "a name has 1 to"),
    ],
)
def test_series_that_cannot_be_closed_are_one_line(
    arguments: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        run(*arguments)


@pytest.mark.django_db(transaction=True)
def test_a_series_is_told_when_it_is_committed() -> None:
    with transaction.atomic():
        open_series("order-17")
    said: list[tuple[str, bool]] = []
    answer = Answer(
        lambda line: said.append((line, connection.in_atomic_block)), is_json=False
    )
    close_series("default", "release", ["order-17"], answer)
    assert said == [("'order-17'  0 messages in the outbox", False)]


def test_what_the_terminal_lacks_is_escaped() -> None:
    said: list[str] = []
    answer = Answer(said.append, is_json=False, encoding="iso8859-1")
    answer.say("schlüssel ключ")
    assert said == ["schlüssel \\u043a\\u043b\\u044e\\u0447"]


def test_prune_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_outbox.models.aging.PRUNE_CHUNK", 2)
    for number in range(5):
        ArchivedRecord.objects.create(
            id=number,
            kafka_topic="t",
            kafka_key="k",
            archived_at=Now() - timedelta(days=number),
        )
    shown = run("prune", "--older-than", "36h", "--yes")
    assert shown == "2 rows pruned\n3 rows pruned\n"
    assert ArchivedRecord.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_prune_says_that_rows_are_left_when_another_session_prunes_too(
    monkeypatch: pytest.MonkeyPatch, postgres: psycopg.Connection
) -> None:
    monkeypatch.setattr("django_outbox.models.aging.PRUNE_CHUNK", 4)
    for number in range(9):
        ProcessedMessage.objects.create(
            consumer="c",
            key=str(number),
            processed_at=Now() - timedelta(days=20 - number),
        )
    arguments = ("prune", "--processed", "--older-than", "2d", "--yes")
    with ThreadPoolExecutor(1) as pool:
        with postgres.transaction():
            postgres.execute("DELETE FROM outbox_processed WHERE key < '3'")
            job = pool.submit(run_and_close, *arguments)
            wait_until_blocked()
        with pytest.raises(CommandError, match="Rows are left"):
            job.result(30)
    assert run(*arguments) == "4 rows pruned\n5 rows pruned\n"
    assert not ProcessedMessage.objects.exists()


def run_and_close(*arguments: str) -> str:
    """Run the command on a thread of its own."""
    try:
        return run(*arguments)
    finally:
        connections.close_all()


def test_prune_of_processed_keys_leaves_the_archive() -> None:
    long_ago = Now() - timedelta(days=2)
    ArchivedRecord.objects.create(
        id=1, kafka_topic="t", kafka_key="k", archived_at=long_ago
    )
    for number, moment in enumerate([long_ago, Now()]):
        ProcessedMessage.objects.create(
            consumer="c", key=str(number), processed_at=moment
        )
    assert (
        run("prune", "--older-than", "36h", "--processed", "--yes") == "1 row pruned\n"
    )
    assert [row.key for row in ProcessedMessage.objects.all()] == ["1"]
    assert ArchivedRecord.objects.count() == 1


@pytest.mark.parametrize("age", ["", "7", "7w", "-1d", "1.5h", "d"])
def test_prune_refuses_another_age(age: str) -> None:
    with pytest.raises(CommandError, match="must look like 90d"):
        run("prune", f"--older-than={age}")


def test_an_age_may_be_given_from_python() -> None:
    for age in (timedelta(days=1), "1d"):
        call_command("outbox", "prune", older_than=age, yes=True)
    with pytest.raises(CommandError, match="--older-than 90d"):
        call_command("outbox", "prune", yes=True)
    for wrong in ("nonsense", 5):
        with pytest.raises(CommandError, match="must look like 90d"):
            call_command("outbox", "prune", older_than=wrong, yes=True)


def test_grants_can_be_run_as_they_are() -> None:
    statements = run(
        *("grants", "--app", 'a"b', "--harvester", "H h", "--operator", "o")
    )
    with connection.cursor() as cursor:
        for role in ('"a""b"', '"H h"', "o"):
            cursor.execute(f"CREATE ROLE {role}")
        for statement in statements.splitlines():
            cursor.execute(statement)
        cursor.execute("SELECT has_table_privilege('H h', 'outbox', 'DELETE')")
        assert cursor.fetchone() == (True,)
        cursor.execute("SELECT has_any_column_privilege('a\"b', 'outbox', 'SELECT')")
        assert cursor.fetchone() == (False,)


def test_grants_are_for_no_other_outbox_than_that_of_the_alias() -> None:
    """The session that runs them may find another one under the same names."""
    suffixes = (
        *("", "_parked", "_archive", "_staged", "_series", "_identity"),
        *("_processed", "_offsets", "_pauses"),
    )
    roles = ("--app", "a", "--harvester", "h", "--consumer", "c", "--operator", "o")
    with connection.cursor() as cursor:
        cursor.execute('CREATE SCHEMA "Sales 2"')
        cursor.execute('SET LOCAL search_path = "Sales 2"')
        for suffix in suffixes:
            cursor.execute(
                f"CREATE TABLE outbox{suffix}"
                f" (LIKE public.outbox{suffix} INCLUDING ALL)"
            )
        cursor.execute(
            "CREATE FUNCTION outbox_archive_tend(double precision) RETURNS integer"
            " LANGUAGE sql AS 'SELECT 0'"
        )

        statements = run("grants", *roles).splitlines()
        document = json.loads(run("grants", *roles, "--json"))

        cursor.execute("SET LOCAL search_path = public")
        for role in "ahco":
            cursor.execute(f"CREATE ROLE {role}")
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(
            """
            SELECT
                has_schema_privilege(role, 'Sales 2', 'USAGE'),
                has_table_privilege(role, '"Sales 2".outbox_series', 'SELECT'),
                has_any_column_privilege(role, 'public.outbox', 'SELECT, INSERT'),
                has_any_column_privilege(role, 'public.outbox_processed', 'SELECT')
            FROM unnest(ARRAY['a', 'h', 'c', 'o']::name[]) AS role
            """
        )
        found = cursor.fetchall()

    assert found == [
        (True, True, False, False),
        (True, True, False, False),
        (True, False, False, False),
        (True, True, False, False),
    ]
    assert document["schema"] == "Sales 2"
    assert document["statements"] == statements


def test_grants_needs_a_role() -> None:
    with pytest.raises(CommandError, match="Name a role"):
        run("grants")


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_can_be_meant() -> None:
    OutboxRecord.objects.using("other").create(kafka_topic="t", kafka_key="k")
    assert "waiting  1 record," in run("status", "--database", "other")
    assert "waiting  0 records" in run("status")


def test_an_unknown_database_is_one_line() -> None:
    with pytest.raises(CommandError, match="there is no database 'nowhere'"):
        run("status", "--database", "nowhere")


@pytest.mark.parametrize("command", [["outbox", "status"], ["runconsumer"]])
def test_a_database_where_django_does_not_commit_is_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything would be reported as done, and rolled back at the end."""
    options = connection.settings_dict | {"AUTOCOMMIT": False}
    monkeypatch.setattr(connections["default"], "settings_dict", options)
    monkeypatch.setattr(handlers, "_subscriptions", [])
    consumer("orders", group="billing")(print)
    with pytest.raises(CommandError, match=r"DATABASES\['default'\] has AUTOCOMMIT"):
        call_command(*command)


@pytest.mark.parametrize("command", [["outbox", "status"], ["runconsumer"]])
def test_another_kind_of_database_is_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its missing tables would be taken for an outage."""
    monkeypatch.setattr(connection, "vendor", "sqlite")
    monkeypatch.setattr(connection, "display_name", "SQLite")
    monkeypatch.setattr(handlers, "_subscriptions", [])
    consumer("orders", group="billing")(print)
    with pytest.raises(CommandError, match="'default' is SQLite; the outbox needs Pos"):
        call_command(*command)


def test_a_table_that_is_missing_is_one_line() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE outbox_archive")
    with pytest.raises(
        CommandError, match=r"Run `manage.py migrate --database=default`"
    ) as caught:
        run("prune", "--older-than", "1d", "--yes")
    assert "\n" not in str(caught.value)


def test_a_group_reads_the_topics_that_are_named_from_their_beginning() -> None:
    offsets = ConsumerOffset.objects.all()
    for topic, partition in (("orders", 0), ("orders", 1), ("payments", 0)):
        offsets.advance("billing", topic, partition, 6, topic_id="one")
    offsets.advance("search", "orders", 0, 6)
    assert run("rewind", "billing", "orders") == (
        "billing will read orders from the beginning: 2 partitions\n"
    )
    assert offsets.positions("billing") == {
        ("orders", 0): (0, ""),
        ("orders", 1): (0, ""),
        ("payments", 0): (7, "one"),
    }
    assert offsets.positions("search") == {("orders", 0): (7, "")}


def test_a_group_or_topic_that_has_no_offsets_is_named() -> None:
    ConsumerOffset.objects.all().advance("billing", "orders", 0, 6)
    with pytest.raises(
        CommandError, match=r"no stored offset of order; it has .*orders"
    ):
        run("rewind", "billing", "orders", "order")
    with pytest.raises(CommandError, match="groups with offsets: billing"):
        run("rewind", "biling", "orders")
    assert ConsumerOffset.objects.get().next_offset == 7
