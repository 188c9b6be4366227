"""Values on their way through the payload classes: table, storage, keys of subjects."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import psycopg
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import connections, transaction
from pytest_django import DjangoAssertNumQueries, Settings

from django_outbox import Message, consumer, stash, stash_delayed, stash_many
from django_outbox.consuming import handlers
from django_outbox.contrib import claim_check, shredding
from django_outbox.contrib.claim_check import ClaimCheck
from django_outbox.contrib.compression import Compressed
from django_outbox.contrib.encryption import Encrypted
from django_outbox.contrib.shredding import Shredded
from django_outbox.exceptions import ConfigurationError, ConsumingError, InvalidMessage
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.middleware import load
from django_outbox.models import OutboxRecord, StagedRecord
from django_outbox.testing import OutboxFixture, run_consumer
from tests.testapp.models import CustomerKey
from tests.waiting import eventually

KEYS: dict[str, bytes] = {"m1": b"1" * 32}
"""The master keys; a test may add one."""


class Small(Compressed):
    at_least = 100


class Secret(Encrypted):
    def keys(self) -> Mapping[str, bytes]:
        return KEYS


class Erasable(Shredded):
    model = CustomerKey
    cache_size = 2

    def keys(self) -> Mapping[str, bytes]:
        return KEYS


class Large(ClaimCheck):
    limit = 200
    most = 5_000
    storage = "outbox"


SMALL, SECRET, ERASABLE, LARGE = (
    f"{__name__}.{one.__name__}" for one in (Small, Secret, Erasable, Large)
)


@pytest.fixture(autouse=True)
def _storage(settings: Settings, tmp_path: Path) -> None:
    backend = "django.core.files.storage.FileSystemStorage"
    settings.STORAGES = {
        **settings.STORAGES,
        "outbox": {"BACKEND": backend, "OPTIONS": {"location": str(tmp_path)}},
    }


@pytest.fixture
def files(tmp_path: Path) -> Callable[[], list[Path]]:
    """Lists the files of the storage."""
    return lambda: sorted(path for path in tmp_path.rglob("*") if path.is_file())


@pytest.fixture
def use(settings: Settings) -> Callable[..., list[Any]]:
    """Sets MIDDLEWARE, and returns its objects."""

    def use(*names: str) -> list[Any]:
        settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": [*names]}
        return list(load(names))

    return use


@pytest.fixture
def erasable(use: Callable[..., list[Any]]) -> Iterator[Erasable]:
    """The class whose keys can be forgotten, with nothing in its memory."""
    (one,) = use(ERASABLE)
    one._known.cache_clear()
    yield one
    KEYS.clear()
    KEYS["m1"] = b"1" * 32


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Callable[[ConsumedMessage], Any]:
    """Handles a message as a new consumer group; returns what the handler got."""
    monkeypatch.setattr(handlers, "_subscriptions", [])

    def handle(message: ConsumedMessage) -> ConsumedMessage:
        got: list[ConsumedMessage] = []

        def note(message: ConsumedMessage) -> None:
            got.append(message)

        run_consumer(consumer(message.topic, group=str(uuid4()))(note), message)
        return got[0]

    return handle


def stashed(**message: Any) -> UUID:
    with transaction.atomic():
        return stash("t", **{"key": "ada", "value": "x", **message})


LONG, NOISE = b"x" * 1_000, random.Random(7).randbytes(1_000)


@pytest.mark.django_db
@pytest.mark.parametrize("encrypted", [SECRET, ERASABLE])
@pytest.mark.parametrize("order", ["cel", "ecl", "elc"])
def test_a_handler_gets_what_was_stashed(
    encrypted: str, order: str, use: Any, outbox: OutboxFixture, handle: Any
) -> None:
    """Also where the order of the classes makes no sense."""
    use(*({"c": SMALL, "e": encrypted, "l": LARGE}[letter] for letter in order))
    values = [b"short", LONG, NOISE, None, "", "text"]
    for value in values:
        stashed(value=value, headers={"event": "placed"})
    sent = outbox.drain()
    assert not any(m.value and (b"short" in m.value or LONG in m.value) for m in sent)
    got = [handle(message) for message in sent]
    assert [m.value for m in got] == [b"short", LONG, NOISE, None, b"", b"text"]
    for message in got:
        names = [name for name, _ in message.headers]
        assert [n for n in names if not n.startswith("outbox-")] == ["event"]
        assert message.message_id


class CustomersSecret(Secret):
    def covers(self, topic: str) -> bool:
        return topic == "t"


class OthersSecret(Encrypted):
    def keys(self) -> Mapping[str, bytes]:
        return {"o1": b"2" * 32}

    def covers(self, topic: str) -> bool:
        return topic != "t"


class OthersErasable(Shredded):
    model = CustomerKey

    def keys(self) -> Mapping[str, bytes]:
        return {"o1": b"2" * 32}

    def covers(self, topic: str) -> bool:
        return topic != "t"

    def reading_key(self, key_id: str) -> bytes | None:
        return None  # as for a key that is in the table of another class


class SameName(OthersSecret):
    def keys(self) -> Mapping[str, bytes]:
        return {"m1": b"2" * 32}


@pytest.mark.django_db
@pytest.mark.parametrize("other", [OthersSecret, OthersErasable, SameName])
@pytest.mark.parametrize("encrypted", [CustomersSecret, ERASABLE])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_value_is_read_by_the_class_that_covers_its_topic(
    other: Any, encrypted: Any, is_first: bool, use: Any, outbox: Any, handle: Any
) -> None:
    name = encrypted if isinstance(encrypted, str) else _name(encrypted)
    names = [name, _name(other)] if is_first else [_name(other), name]
    use(name)
    stashed(value="text")
    use(*names)
    (message,) = outbox.drain()
    assert handle(message).value == b"text"


@pytest.mark.django_db
def test_a_topic_that_no_class_covers_any_more_is_still_read(
    use: Any, outbox: OutboxFixture, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(_name(CustomersSecret))
    stashed(value="text")
    monkeypatch.setattr(CustomersSecret, "covers", lambda *_: False)
    (message,) = outbox.drain()
    assert handle(message).value == b"text"
    monkeypatch.setattr(CustomersSecret, "keys", lambda _: {"m2": b"1" * 32})
    with pytest.raises(ConsumingError, match="has no key 'm1'"):
        handle(message)


def _name(one: type[object]) -> str:
    return f"{__name__}.{one.__name__}"


@pytest.mark.django_db
def test_every_way_to_stash_wraps(erasable: Erasable) -> None:
    later = timedelta(hours=1)
    with transaction.atomic():
        stash_many([Message("t", key="ada", value="secret") for _ in range(3)])
        stash_delayed("t", key="ada", value="secret", not_before=later)
    rows = [*OutboxRecord.objects.all(), *StagedRecord.objects.all()]
    assert len(rows) == 4
    for row in rows:
        assert row.kafka_value is None
        assert b"secret" not in bytes(row.kafka_value_bytes or b"")
        assert row.kafka_header_keys == ["encryption", "encryption-subject-key"]
    assert CustomerKey.objects.get().subject == "ada"


# Keys of subjects.


@pytest.mark.django_db
def test_a_forgotten_subject_is_erased_and_begins_again(
    erasable: Erasable, outbox: OutboxFixture, handle: Any
) -> None:
    stashed(value="of ada")
    stashed(value="of ben", key="ben")
    ada, ben = outbox.drain()
    assert CustomerKey.objects.forget("ada")
    assert not CustomerKey.objects.forget("ada")

    gone = handle(ada)
    assert (gone.value, gone.key) == (None, b"ada")
    assert gone.header("encryption-erased") == ada.header("encryption-subject-key")
    assert gone.header("encryption") is None
    assert handle(ben).text() == "of ben"

    stashed(value="of ada, later")
    (later,) = outbox.drain()
    assert handle(later).text() == "of ada, later"
    assert handle(ada).value is None


@pytest.mark.django_db
def test_all_messages_about_a_subject_have_one_key(
    erasable: Erasable, outbox: OutboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Erasable, "subject", lambda _, message: message.topic)
    for key in "abc":
        stashed(key=key)
    ids = {message.header("encryption-subject-key") for message in outbox.drain()}
    assert len(ids) == 1
    assert CustomerKey.objects.get().subject == "t"


@pytest.mark.django_db
def test_a_consumer_reads_on_as_long_as_the_page_says(
    erasable: Erasable,
    outbox: OutboxFixture,
    handle: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(shredding, "boottime", lambda: now)
    erasable._known_until = 0.0
    stashed(value="of ada")
    (message,) = outbox.drain()
    assert handle(message).text() == "of ada"
    CustomerKey.objects.forget("ada")
    now += erasable.cache_seconds - 0.1
    assert handle(message).text() == "of ada"
    now += 0.1
    assert handle(message).is_tombstone


@pytest.mark.django_db
def test_few_keys_are_remembered(
    erasable: Erasable,
    outbox: OutboxFixture,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for key in "abc":
        stashed(key=key)
    ids = [m.header("encryption-subject-key") or "" for m in outbox.drain()]
    with django_assert_num_queries(3):
        for key_id in (*ids, *ids[1:]):
            assert erasable.reading_key(key_id)
    with django_assert_num_queries(1):
        erasable.reading_key(ids[0])


@pytest.mark.django_db
def test_a_stash_costs_one_query_and_a_new_subject_three_more(
    erasable: Erasable, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    message = Message("t", key="ada", value="x")
    with django_assert_num_queries(4):
        erasable.writing_key(message)
    with django_assert_num_queries(1):
        erasable.writing_key(message)


@contextmanager
def running(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Run work on a thread with connections of its own, which ends with the block."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(30)
        assert not thread.is_alive()


def is_blocked(postgres: psycopg.Connection, words: str) -> bool:
    """Whether a statement with these words waits for another transaction."""
    return bool(
        postgres.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND query LIKE %s AND datname = current_database()",
            [f"%{words}%"],
        ).fetchone()
    )


@pytest.mark.django_db(transaction=True)
def test_to_forget_waits_for_those_who_write_about_the_subject(
    erasable: Erasable,
    outbox: OutboxFixture,
    handle: Any,
    postgres: psycopg.Connection,
) -> None:
    stashed(value="first")
    with ExitStack() as stack, transaction.atomic():
        stash("t", key="ada", value="second")
        # Others may write meanwhile.
        with running(lambda: stashed(value="third")):
            pass
        forget = running(lambda: CustomerKey.objects.forget("ada"))
        thread = stack.enter_context(forget)
        eventually(lambda: is_blocked(postgres, "DELETE"), what="forget() waits")
        assert thread.is_alive()
    stashed(value="later")
    messages = outbox.drain()
    assert len(messages) == 4
    assert sorted(handle(message).text() for message in messages) == [
        *("", "", ""),
        "later",
    ]


@pytest.mark.django_db(transaction=True)
def test_to_forget_waits_for_the_first_message_about_a_subject(
    erasable: Erasable,
    outbox: OutboxFixture,
    handle: Any,
    postgres: psycopg.Connection,
) -> None:
    """Its key is not committed yet, so nobody else sees it."""
    with ExitStack() as stack, transaction.atomic():
        stash("t", key="ada", value="first")
        forget = running(lambda: CustomerKey.objects.forget("ada"))
        thread = stack.enter_context(forget)
        eventually(
            lambda: is_blocked(postgres, "lock a subject"), what="forget() waits"
        )
        assert thread.is_alive()
    (message,) = outbox.drain()
    assert handle(message).text() == ""


@pytest.mark.django_db(transaction=True)
def test_two_who_meet_a_new_subject_agree_on_its_key(
    erasable: Erasable, outbox: OutboxFixture, postgres: psycopg.Connection
) -> None:
    with ExitStack() as stack, transaction.atomic():
        stash("t", key="ada", value="x")
        stack.enter_context(running(stashed))
        eventually(lambda: is_blocked(postgres, "INSERT"), what="the other one waits")
    ids = {message.header("encryption-subject-key") for message in outbox.drain()}
    assert ids == {str(CustomerKey.objects.get().key_id)}


@pytest.mark.django_db(transaction=True)
def test_a_key_commits_with_its_first_message(erasable: Erasable) -> None:
    class Cancelled(Exception):
        """Rolls back."""

    with pytest.raises(Cancelled), transaction.atomic():
        stash("t", key="ada", value="x")
        raise Cancelled
    assert not CustomerKey.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_handler_that_only_transforms_has_keys_for_its_output(
    erasable: Erasable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_subscriptions", [])

    @consumer("source", group="g", transforms=True)
    def transform(message: ConsumedMessage) -> Message:
        return Message("t", key="ada", value=message.value)

    message = ConsumedMessage(topic="source", key=b"k", value=b"x")
    (made,) = run_consumer(transform, message).output
    assert dict(made.headers)["encryption-subject-key"] == str(
        CustomerKey.objects.get().key_id
    )


@pytest.mark.django_db
def test_what_has_no_subject_is_refused(erasable: Erasable) -> None:
    with pytest.raises(InvalidMessage, match=r"^subject: 0 characters"):
        stashed(key="")
    stashed(key="", value=None)


@pytest.mark.django_db
def test_a_master_key_can_be_replaced(
    erasable: Erasable, outbox: OutboxFixture, handle: Any
) -> None:
    for key in "ab":
        stashed(key=key, value=f"of {key}")
    KEYS.clear()
    KEYS.update({"m2": b"2" * 32, "m1": b"1" * 32})
    stashed(key="c", value="of c")
    masters = CustomerKey.objects.order_by("subject").values_list("master", flat=True)
    assert list(masters) == ["m1", "m1", "m2"]
    assert (erasable.rewrap(), erasable.rewrap()) == (2, 0)
    assert list(masters.all()) == ["m2", "m2", "m2"]
    del KEYS["m1"]
    assert [handle(m).text() for m in outbox.drain()] == ["of a", "of b", "of c"]


@pytest.mark.django_db
def test_without_its_master_key_a_key_is_not_deleted(
    erasable: Erasable, outbox: OutboxFixture, handle: Any
) -> None:
    stashed()
    (message,) = outbox.drain()
    del KEYS["m1"]
    with pytest.raises(ConsumingError, match="no master key 'm1'"):
        handle(message)
    KEYS["m1"] = b"3" * 32
    with pytest.raises(ConsumingError, match="cannot be decrypted"):
        handle(message)


@pytest.mark.django_db
def test_a_key_id_that_is_none_is_not_deleted(
    erasable: Erasable, outbox: OutboxFixture, handle: Any
) -> None:
    stashed()
    (message,) = outbox.drain()
    headers = (*message.headers, ("encryption-subject-key", b"nothing"))
    with pytest.raises(ConsumingError, match="is not a UUID"):
        handle(replace(message, headers=headers))


# Claim checks.


@pytest.mark.django_db
def test_a_large_value_is_in_the_storage(
    use: Any, outbox: OutboxFixture, handle: Any, files: Any, tmp_path: Path
) -> None:
    use(LARGE)
    for value in (LONG, LONG, b"x" * 200, None):
        stashed(value=value)
    first, second, small, tombstone = outbox.drain()
    assert (first.value, small.value, tombstone.value) == (b"", b"x" * 200, None)
    name = first.header("claim-check") or ""
    day, digest = name.removeprefix("outbox/").split("/")
    assert datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) <= datetime.now(UTC)
    assert digest == first.header("claim-check-sha256")
    assert first.header("claim-check-size") == "1000"
    assert (tmp_path / name).read_bytes() == LONG
    # Equal values are files of their own.
    assert second.header("claim-check") != name
    assert len(files()) == 2
    assert handle(second).value == LONG


@pytest.mark.django_db
def test_a_value_that_no_consumer_would_read_is_refused(use: Any, files: Any) -> None:
    use(LARGE)
    stashed(value=b"x" * 5_000)
    with pytest.raises(InvalidMessage, match=r"5001 bytes exceed Large\.most"):
        stashed(value=b"x" * 5_001)
    assert len(files()) == 1


@pytest.mark.parametrize("folder", ["", "outbox/", "/outbox", "a//b", "a/../b"])
def test_a_folder_that_its_storage_spells_differently_is_refused(folder: str) -> None:
    """What is saved there could not be read."""
    with pytest.raises(ConfigurationError, match="must be the path of a folder"):
        type("Astray", (ClaimCheck,), {"folder": folder})()


@pytest.mark.django_db(transaction=True)
def test_a_rollback_leaves_a_file_which_goes_with_its_day(
    use: Any, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (large,) = use(LARGE)

    class Cancelled(Exception):
        """Rolls back."""

    with pytest.raises(Cancelled), transaction.atomic():
        stash("t", key="k", value=LONG)
        raise Cancelled
    assert not OutboxRecord.objects.exists()
    assert len(files()) == 1
    (folder,) = {file.parent for file in files()}

    class Later(datetime):
        """Two days later, or three."""

        days = 2

        @classmethod
        def now(cls, tz: Any = None) -> Self:
            day = datetime.fromisoformat(folder.name).replace(tzinfo=UTC)
            late = day + timedelta(days=cls.days, hours=12)
            return cls.fromtimestamp(late.timestamp(), tz)

    monkeypatch.setattr(claim_check, "datetime", Later)
    assert large.remove_older(than=timedelta(days=2)) == 0
    assert len(files()) == 1
    Later.days = 3
    assert large.remove_older(than=timedelta(days=2)) == 1
    assert not folder.exists()
    assert large.remove_older(than=timedelta(days=2)) == 0


@pytest.mark.django_db
def test_only_old_days_are_removed(use: Any, files: Any, tmp_path: Path) -> None:
    (large,) = use(LARGE)
    assert large.remove_older(than=timedelta(days=1)) == 0
    stashed(value=LONG)
    (kept,) = files()
    for name in ("2020-01-01/a", "2020-01-01/b", "2020-02-01/c", "notes/d"):
        storages["outbox"].save(f"outbox/{name}", ContentFile(b"x"))
    storages["outbox"].save("2020-01-01/e", ContentFile(b"x"))
    assert large.remove_older(than=timedelta(days=1)) == 3
    left = [tmp_path / "2020-01-01/e", kept, tmp_path / "outbox/notes/d"]
    assert files() == sorted(left)


@pytest.mark.django_db
def test_old_days_may_be_removed_by_two_at_once(
    use: Any, files: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (large,) = use(LARGE)
    for name in ("2020-01-01/a", "2020-01-02/b"):
        storages["outbox"].save(f"outbox/{name}", ContentFile(b"x"))
    listed = large._days()
    shutil.rmtree(tmp_path / "outbox/2020-01-01")
    monkeypatch.setattr(large, "_days", lambda: listed)
    assert large.remove_older(than=timedelta(days=1)) == 1
    assert files() == []


@pytest.mark.django_db
def test_a_file_that_is_not_the_value_is_refused(
    use: Any, outbox: OutboxFixture, handle: Any, files: Any, tmp_path: Path
) -> None:
    use(LARGE)
    stashed(value=LONG)
    (message,), (file,) = outbox.drain(), files()
    for content in (LONG[1:], b"y" * 1_000, LONG + b"x"):
        file.write_bytes(content)
        with pytest.raises(ConsumingError, match="its size or SHA-256 differs"):
            handle(message)
    file.unlink()
    with pytest.raises(ConsumingError, match="Keep files longer than the topic"):
        handle(message)
    (tmp_path / "secret").write_bytes(LONG)
    for name in (b"secret", b"outbox/../secret", str(tmp_path / "secret").encode()):
        headers = (*message.headers, ("claim-check", name))
        with pytest.raises(ConsumingError, match="does not name a file in 'outbox'"):
            handle(replace(message, headers=headers))


@pytest.mark.django_db
def test_an_erased_value_in_a_storage_is_erased(
    use: Any, outbox: OutboxFixture, handle: Any, files: Any
) -> None:
    use(ERASABLE, LARGE)
    stashed(value=LONG)
    (message,), (file,) = outbox.drain(), files()
    assert LONG not in file.read_bytes()
    CustomerKey.objects.forget("ada")
    assert handle(message).is_tombstone
