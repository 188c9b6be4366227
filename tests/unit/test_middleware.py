"""What messages pass: in which order, and what happens when it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from django_outbox import conf
from django_outbox.checks import check_settings
from django_outbox.exceptions import ConfigurationError, ConsumingError, StashError
from django_outbox.harvester.hooked_table import HookedTable
from django_outbox.message.headers import Envelope
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.middleware import (
    Handle,
    Middleware,
    handle_within,
    load,
    overriding,
    produced,
    stash_hook,
)
from django_outbox.message.outgoing import Message, Rows
from django_outbox.message.record import Record
from django_outbox.settings.options import OutboxSettings
from tests.fakes.outbox import InMemoryOutbox

from .samples import record


class Adds(Middleware):
    """Adds its letter at each place."""

    def __init__(self, letter: str = "a") -> None:
        self.letter = letter

    def stash(self, message: Message) -> Message:
        message.value = str(message.value) + self.letter
        return message

    def produce(self, record: Record) -> Record:
        return record._replace(value=str(record.value) + self.letter)

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        value = (message.value or b"") + self.letter.encode()
        handle(ConsumedMessage(topic=message.topic, value=value))


class Silent(Middleware):
    """Does nothing anywhere."""


class Doing(Middleware):
    """Does what a test says, at each place."""

    def __init__(self, does: Callable[[Any], Any]) -> None:
        self.does = does

    def stash(self, message: Message) -> Message:
        return self.does(message)  # type: ignore[no-any-return]

    def produce(self, record: Record) -> Record:
        return self.does(record)  # type: ignore[no-any-return]

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        self.does(handle)


BOTH = [Adds("a"), Silent(), Adds("b")]


def rows(*middleware: Middleware, **settings: Any) -> Rows:
    return Rows(OutboxSettings(**settings), str, transform=stash_hook(middleware))


# Where a message is written.


def test_stash_is_called_from_the_first_to_the_last() -> None:
    row = rows(*BOTH).make(Message("t", key="k", value=17))
    assert row.text == "17ab"


def test_what_is_stashed_is_a_copy_with_its_value_as_it_would_be_stored() -> None:
    seen: list[Message] = []

    def note(message: Message) -> Message:
        seen.append(message)
        message.headers.append(("added", "1"))  # type: ignore[union-attr]
        return message

    mine = Message("t", key="k", value={"a": 1}, headers={"h": "v"}, partition=3)
    row = rows(Doing(note)).make(mine)
    assert (seen[0].value, seen[0].partition) == ("{'a': 1}", 3)
    assert (row.header_names, row.header_values) == (["h", "added"], ["v", "1"])
    assert mine.headers == {"h": "v"}


@pytest.mark.parametrize("middleware", [(), BOTH])
def test_headers_that_are_given_once_reach_the_serializer_and_the_row(
    middleware: Sequence[Middleware],
) -> None:
    def serialize(value: object, *, headers: Any) -> str:
        return f"{value} with {[*headers]}"

    hooked = Rows(OutboxSettings(), serialize, transform=stash_hook(middleware))
    headers = (pair for pair in [("h", "v")])
    row = hooked.make(Message("t", key="k", value=1, headers=headers))
    assert (row.text or "").startswith("1 with [('h', 'v')]")
    assert (row.header_names, row.header_values) == (["h"], ["v"])


@pytest.mark.parametrize("value", [None, "text", b"raw", bytearray(b"raw")])
def test_values_that_need_no_serializer_stay(value: object) -> None:
    row = rows(Doing(lambda message: message)).make(Message("t", key="k", value=value))
    assert (row.text or row.raw) == (
        bytes(value) if isinstance(value, bytearray) else value
    )


def test_what_stash_returns_is_checked() -> None:
    hooked = rows(Doing(lambda m: Message(m.topic, key=m.key, value="x" * 11)))
    with pytest.raises(StashError, match="900001 bytes"):
        rows(Doing(lambda m: Message(m.topic, key=m.key, value="x" * 900_001))).make(
            Message("t", key="k", value="")
        )
    with pytest.raises(StashError, match=r"Doing.stash\(\) must return a Message"):
        rows(Doing(lambda _: None)).make(Message("t", key="k", value=""))
    assert hooked.make(Message("t", key="k", value="")).text == "x" * 11


def test_an_error_of_stash_fails_the_stash() -> None:
    def fail(_: Message) -> Message:
        raise LookupError("no key")

    with pytest.raises(LookupError, match="no key"):
        rows(Doing(fail)).make(Message("t", key="k", value=""))


def test_without_stash_nothing_is_copied() -> None:
    assert stash_hook([Silent()]) is None


# Where it is sent.


def test_produce_is_called_from_the_first_to_the_last() -> None:
    assert produced(BOTH, record(1, value="17")).value == "17ab"


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        (lambda r: r._replace(key="other"), "changed more than value and headers"),
        (lambda r: r._replace(topic="other"), "changed more than value and headers"),
        (lambda r: r._replace(partition=1), "changed more than value and headers"),
        (lambda _: None, "changed more than value and headers"),
        (lambda r: r.payload, "raised AttributeError"),
        (lambda r: r._replace(value=bytearray(b"x")), "returned no text or bytes"),
        (lambda r: r._replace(value=7), "returned no text or bytes"),
        (lambda r: r._replace(header_keys=None), "or no lists of headers"),
        (lambda r: r._replace(value="\ud83d"), "raised UnicodeEncodeError"),
        (lambda r: r._replace(header_keys=["\ud83d"]), "raised UnicodeEncodeError"),
        (lambda r: r._replace(header_values=["\ud83d"]), "raised UnicodeEncodeError"),
    ],
)
def test_a_record_that_cannot_be_produced_is_poison_and_keeps_its_place(
    does: Callable[[Any], Any], reason: str
) -> None:
    poison = produced([Doing(does)], record(7, "k", attempts=2))
    assert (poison.id, poison.ordering_key, poison.attempts) == (7, ("t", "k"), 2)
    assert poison.message_id == record(7).message_id
    with pytest.raises(Exception, match=r"MIDDLEWARE: Doing\.produce") as error:
        Envelope(OutboxSettings(LEADER_TOPIC="l")).headers(poison, "me")
    assert reason in str(error.value)


def test_a_row_that_cannot_be_read_passes_nothing() -> None:
    row = Record.unreadable(1, ("t", "k"), "", reason="bytes")
    assert produced(BOTH, row) is row


def test_the_harvester_reads_through_it() -> None:
    table = InMemoryOutbox()
    stored = table.insert("t", "k", "17")
    hooked = HookedTable(table, BOTH)
    (read,) = hooked.mark("me", limit=10)
    assert read == stored._replace(value="17ab")
    assert table.records() == [stored]


# Where it is consumed.


def test_consume_is_called_from_the_last_to_the_first() -> None:
    got: list[bytes | None] = []
    message = ConsumedMessage(topic="t", value=b"17")
    handle_within(BOTH, message, lambda given: got.append(given.value))
    assert got == [b"17ba"]


def test_who_does_not_call_the_handler_is_told() -> None:
    def keep(handle: Handle) -> None:
        with suppress(LookupError):
            handle(ConsumedMessage(topic="t"))

    def fail(_: ConsumedMessage) -> None:
        raise LookupError

    message = ConsumedMessage(topic="t")
    for does, handle in ((lambda _: None, lambda _: None), (keep, fail)):
        with pytest.raises(ConsumingError, match=r"consume\(\) of Doing must call"):
            handle_within([Doing(does)], message, handle)
    with pytest.raises(LookupError):
        handle_within(BOTH, message, fail)


# The setting.


def test_each_class_is_made_once_from_its_path() -> None:
    (made,) = load([f"{__name__}.Adds"])
    assert isinstance(made, Adds)
    assert overriding([Silent(), made], "produce") == [made]


class NeedsMore(Middleware):
    def __init__(self, more: int) -> None:
        """It cannot be made without arguments."""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.Masked", "cannot import 'nowhere.Masked'"),
        (f"{__name__}.Missing", "cannot import"),
        ("Masked", "cannot import 'Masked'"),
        (f"{__name__}.load", "must be a subclass of django_outbox.Middleware"),
        (f"{__name__}.NeedsMore", "raised TypeError"),
    ],
)
def test_a_wrong_path_is_refused_with_its_name(name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^MIDDLEWARE: ") as refused:
        load([name])
    assert reason in str(refused.value)


@pytest.mark.parametrize("entry", [Silent, Silent(), {"class": "x"}])
def test_what_is_no_text_is_refused(entry: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be the dotted path"):
        load([entry])


def test_the_system_check_names_it(settings: Any) -> None:
    settings.DJANGO_OUTBOX = {**settings.DJANGO_OUTBOX, "MIDDLEWARE": ["nowhere.M"]}
    messages = [m for m in check_settings() if "MIDDLEWARE" in m.msg]
    assert [m.id for m in messages] == ["django_outbox.E002"]
    assert conf.settings.MIDDLEWARE == ["nowhere.M"]
