"""Values that are compressed or encrypted: what comes back, and what is refused."""

from __future__ import annotations

import base64
import gzip
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_outbox.contrib.claim_check import ClaimCheck
from django_outbox.contrib.compression import Compressed
from django_outbox.contrib.encryption import Encrypted, read_keys
from django_outbox.exceptions import (
    ConfigurationError,
    ConsumingError,
    InvalidMessage,
    OutboxError,
)
from django_outbox.message.incoming import ConsumedMessage
from django_outbox.message.middleware import Middleware, load
from django_outbox.pipeline.payloads.wrapping import (
    MAX_UNWRAPPED_BYTES,
    bound_to,
    decompressed,
    encrypted,
    find_claim,
    origins,
    verified,
)
from tests.wrapped import handled, sent, with_headers

SECRET = "the secret of the value"
OLD, NEW = b"o" * 32, b"n" * 32


class Secret(Encrypted):
    """Encrypts with the first of its keys."""

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = {"old": OLD} if keys is None else keys

    def keys(self) -> Mapping[str, bytes]:
        return self._keys


class Eager(Compressed):
    at_least = 1


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.none() | TEXTS | st.binary() | st.binary(min_size=1).map(lambda b: b * 99)


@given(value=VALUES, key=TEXTS.filter(lambda t: len(t) < 99), is_late=st.booleans())
@settings(deadline=None)
def test_a_handler_gets_what_was_stashed_in_any_order_of_the_classes(
    value: str | bytes | None, key: str, *, is_late: bool
) -> None:
    classes: list[Middleware] = [Eager(), Secret()]
    if is_late:
        classes.reverse()
    headers = {"event": "placed"}
    message = sent(*classes, value=value, key=key, headers=headers)
    got = handled(*classes, message=message)
    assert got.value == (value.encode() if isinstance(value, str) else value)
    assert got.headers == (("event", b"placed"),)
    assert (got.topic, got.key) == (message.topic, message.key)


# Encryption.


def test_who_has_no_key_sees_nothing_of_the_value() -> None:
    first, second = (sent(Secret(), value=SECRET) for _ in range(2))
    assert first.headers == (("encryption", b"A256GCM"), ("encryption-key", b"old"))
    assert first.value is not None
    assert len(first.value) == len(SECRET) + 12 + 16
    assert SECRET.encode() not in first.value
    # Another nonce.
    assert first.value != second.value


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    both = Secret({"new": NEW, "old": OLD})
    message = sent(both, value=SECRET)
    assert message.header("encryption-key") == "new"
    for earlier in (message, sent(Secret(), value=SECRET)):
        assert handled(both, message=earlier).text() == SECRET


def test_tombstones_stay_tombstones() -> None:
    strict = Secret()
    strict.required = True
    message = sent(strict, value=None)
    assert (message.value, message.headers) == (None, ())
    assert handled(strict, message=message).is_tombstone


GOOD = sent(Compressed(), Secret(), value=SECRET * 100)
assert GOOD.value is not None
FLIPPED = [
    bytes(byte ^ (position == at) for position, byte in enumerate(GOOD.value))
    for at in (
        0,
        11,
        12,
        len(GOOD.value) - 17,
        len(GOOD.value) - 16,
        -1 % len(GOOD.value),
    )
]


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "payments"},
        {"topic": "order"},
        {"topic": "copies.of.orders"},
        {"key": b"18"},
        {"key": None},
        {"key": b"17\0"},
        {"headers": with_headers(GOOD, encryption_key=b"new")},
        {"headers": with_headers(GOOD, encryption_key=b"unknown")},
        {"headers": with_headers(GOOD, encryption=None)},
        {"headers": with_headers(GOOD, encryption=b"A128GCM")},
        {"headers": with_headers(GOOD, content_encoding=None)},
        {"headers": with_headers(GOOD, content_encoding=b"br")},
        *({"value": GOOD.value[:size]} for size in (0, 5, 12, 27, 28)),
        {"value": GOOD.value[:-1]},
        {"value": GOOD.value + b"\0"},
        *({"value": value} for value in FLIPPED),
    ],
)
def test_a_changed_message_is_refused(changes: dict[str, Any]) -> None:
    classes = (Compressed(), Secret({"old": OLD, "new": NEW}))
    assert handled(*classes, message=GOOD).text() == SECRET * 100
    with pytest.raises(ConsumingError) as refused:
        handled(*classes, message=replace(GOOD, **changes))
    assert SECRET not in str(refused.value)


def test_another_key_of_the_same_id_is_refused() -> None:
    with pytest.raises(ConsumingError, match="cannot be decrypted"):
        handled(Secret({"old": NEW}), message=GOOD)


@pytest.mark.parametrize(
    "topic", ["orders.dlt", "orders.replay", "orders.billing.retry-1"]
)
def test_topics_that_are_named_after_a_topic_have_its_values(topic: str) -> None:
    message = replace(sent(Secret(), value=SECRET), topic=topic)
    assert handled(Secret(), message=message).text() == SECRET


def test_other_copies_are_a_matter_of_origins() -> None:
    class Mirrored(Secret):
        def origins(self, topic: str) -> list[str]:
            return [topic.removeprefix("west.")]

    message = replace(sent(Secret(), value=SECRET), topic="west.orders")
    assert handled(Mirrored(), message=message).text() == SECRET
    assert list(origins("a.b.c")) == ["a.b.c", "a.b", "a"]


def test_plain_values_pass_until_encryption_is_required() -> None:
    lenient, strict = Secret(), Secret()
    strict.required = True
    message = sent(value=SECRET)
    assert handled(lenient, message=message) == message
    with pytest.raises(ConsumingError, match="not encrypted") as refused:
        handled(strict, message=message)
    assert SECRET not in str(refused.value)


def test_a_class_covers_some_topics_and_requires_encryption_there_only() -> None:
    class Payments(Secret):
        required = True

        def covers(self, topic: str) -> bool:
            return topic == "payments"

    orders = sent(Payments(), value=SECRET)
    assert (orders.text(), orders.headers) == (SECRET, ())
    assert handled(Payments(), message=orders) == orders
    payment = sent(Payments(), value=SECRET, topic="payments")
    assert handled(Payments(), message=payment).text() == SECRET
    retried = replace(orders, topic="payments.billing.retry-1")
    with pytest.raises(ConsumingError, match="is not encrypted"):
        handled(Payments(), message=retried)


def test_an_order_that_would_save_plain_files_is_refused() -> None:
    headers = {"claim-check": "outbox/2026-11-25/f"}
    with pytest.raises(InvalidMessage, match="move Secret up in MIDDLEWARE"):
        sent(Secret(), value=SECRET, headers=headers)
    with pytest.raises(InvalidMessage, match=r"Secret.covers\(\)"):
        sent(Secret(), Secret(), value=SECRET)
    with pytest.raises(InvalidMessage, match="only ClaimCheck may set it"):
        sent(ClaimCheck(), value=SECRET, headers=headers)


@pytest.mark.parametrize(
    ("keys", "words"),
    [({}, "at least one key"), ({"short": b"x"}, "1 bytes; it must have 32")],
)
def test_wrong_keys_are_a_matter_of_configuration(
    keys: dict[str, bytes], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        sent(Secret(keys), value=SECRET)


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
@pytest.mark.parametrize("one", [Secret(), Eager(), ClaimCheck()])
def test_text_that_cannot_be_stored_is_refused_as_without_the_class(
    one: Middleware, value: str
) -> None:
    with pytest.raises(InvalidMessage, match=r"^value: contains a"):
        sent(one, value=value)


@pytest.mark.parametrize("key", [17, None, "x" * 256, "\ud800"])
def test_a_key_that_is_none_is_refused_as_without_the_class(key: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"^key: "):
        sent(Secret(), value=SECRET, key=key)


# Few and short, so that they often meet.
SHORT = st.text("a", max_size=2)
FIELDS = {
    "topic": SHORT,
    "key": SHORT.map(str.encode),
    "key_id": SHORT,
    "content_encoding": SHORT,
}


@given(one=st.fixed_dictionaries(FIELDS), other=st.fixed_dictionaries(FIELDS))
def test_different_messages_are_bound_to_different_data(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (bound_to(**one) == bound_to(**other)) is (one == other)


def test_what_a_value_is_bound_to_is_as_the_page_says() -> None:
    data = bound_to(topic="orders", key=b"17", key_id="old", content_encoding=None)
    assert data == (
        b"\0\0\0\x07A256GCM\0\0\0\x03old\0\0\0\x06orders\0\0\0\x0217\0\0\0\0"
    )
    assert len(encrypted(b"value", OLD, data)) == 12 + 5 + 16


# Keys.


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True),
        st.binary(min_size=32, max_size=32),
        max_size=4,
    )
)
def test_keys_are_read_in_their_order(keys: dict[str, bytes]) -> None:
    text = " ".join(f"{k}:{base64.b64encode(v).decode()}" for k, v in keys.items())
    assert list(read_keys(f" {text}\n").items()) == list(keys.items())


ENCODED = base64.b64encode(NEW).decode()


@pytest.mark.parametrize(
    "second",
    [
        ENCODED,
        f":{ENCODED}",
        f"b:{ENCODED[:-4]}",
        f"b:{ENCODED}x",
        f"a:{ENCODED}",
        "b:é",
    ],
)
def test_a_malformed_key_is_named_by_its_position(second: str) -> None:
    with pytest.raises(ConfigurationError, match="keys: number 2 must be") as refused:
        read_keys(f"a:{base64.b64encode(OLD).decode()} {second}")
    shown: BaseException | None = refused.value
    while shown is not None:
        assert ENCODED[:8] not in str(shown)
        shown = shown.__cause__


# Compression.


def test_only_what_becomes_smaller_is_compressed() -> None:
    large, small = "x" * 1_000, "x" * 999
    message = sent(Compressed(), value=large)
    assert message.headers == (("content-encoding", b"gzip"),)
    assert message.value is not None
    assert len(message.value) < 100
    assert message == sent(Compressed(), value=large)
    random = os.urandom(5_000)
    for value in (small, random, None):
        assert sent(Compressed(), value=value) == sent(value=value)


def test_an_encoding_of_ones_own_stays() -> None:
    headers = {"content-encoding": "br"}
    message = sent(Compressed(), value="x" * 5_000, headers=headers)
    assert message == sent(value="x" * 5_000, headers=headers)
    assert handled(Compressed(), message=message) == message


def test_a_value_that_no_consumer_would_take_is_not_compressed() -> None:
    one = Compressed()
    one.most = 5_000
    assert sent(one, value="x" * 5_000).headers
    assert not sent(one, value="x" * 5_001).headers
    for size in (5_001, 6_000):
        too_large = compressed(gzip.compress(b"x" * size))
        with pytest.raises(ConsumingError, match="more than 5000 bytes"):
            handled(one, message=too_large)


def compressed(value: bytes) -> ConsumedMessage:
    return ConsumedMessage(
        topic="t", value=value, headers=(("content-encoding", b"gzip"),)
    )


def test_a_small_message_cannot_fill_the_memory() -> None:
    bomb = compressed(gzip.compress(bytes(MAX_UNWRAPPED_BYTES + 1)))
    assert len(bomb.value or b"") < 100_000
    with pytest.raises(ConsumingError, match="more than 100000000 bytes"):
        handled(Compressed(), message=bomb)
    parts = gzip.compress(b"x" * 600) * 2
    assert decompressed(parts, most=1_200) == b"x" * 1_200
    with pytest.raises(ConsumingError, match="more than 1199 bytes"):
        decompressed(parts, most=1_199)


ZIPPED = gzip.compress(b"x" * 5_000, mtime=0)


@pytest.mark.parametrize(
    "value",
    [b"", b"plain", ZIPPED[:-1], ZIPPED[:10], ZIPPED[:-8] + bytes(8), ZIPPED + b"x"],
)
def test_what_is_not_gzip_is_refused(value: bytes) -> None:
    with pytest.raises(ConsumingError, match="first of the payload classes"):
        handled(Compressed(), message=compressed(value))


# Claim checks.


def claim(name: str, **more: str) -> Callable[[str], str | None]:
    return {"claim-check": name, "claim-check-size": "3", **more}.get


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "..", "outbox", "outbox/", "other/f", "outboxes/f", "/etc/passwd"),
        *("outbox/../f", "outbox/a/../../f", "outbox//f", "outbox/./f"),
        *("outbox\\f", "outbox/..\\f", "C:/outbox/f", "outbox/f\0"),
    ],
)
def test_names_that_lead_out_of_the_folder_are_refused(name: str) -> None:
    with pytest.raises(ConsumingError, match="does not name a file"):
        find_claim(claim(name), folder="outbox")


@pytest.mark.parametrize("size", ["", "-3", "3.0", "٣", "9" * 16, "100000001"])
def test_sizes_that_are_none_or_too_large_are_refused(size: str) -> None:
    with pytest.raises(ConsumingError, match=r"claim-check-size|more than"):
        find_claim(claim("outbox/f", **{"claim-check-size": size}), folder="outbox")


def test_a_file_has_the_size_and_the_digest_of_the_headers() -> None:
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    found = find_claim(claim("a/f", **{"claim-check-sha256": digest}))
    assert found is not None
    assert verified(found, b"abc") == b"abc"
    for value in (b"", b"ab", b"abd", b"abcd"):
        with pytest.raises(ConsumingError, match="differs"):
            verified(found, value)
    assert find_claim({"other": "x"}.get) is None


# What it costs not to use them.


@pytest.mark.parametrize("module", ["compression", "claim_check", "encryption"])
def test_no_package_is_imported_that_is_not_needed(module: str) -> None:
    code = (
        f"import sys, django_outbox.contrib.{module}\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'cryptography', 'confluent_kafka'}\n"
        "print(sorted(heavy & {*sys.modules}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


def test_every_error_is_one_of_ours() -> None:
    for value, key in itertools.product([b"", b"x", b"x" * 28], [b"", b"x", OLD]):
        with pytest.raises(OutboxError):
            handled(
                Secret({"old": key}),
                message=replace(GOOD, value=value),
            )


@pytest.mark.parametrize("name", ["encryption.Encrypted", "shredding.Shredded"])
def test_a_class_without_keys_is_found_when_middleware_is_loaded(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}\(\) raised .*keys"):
        load([f"django_outbox.contrib.{name}"])
