"""
How values are wrapped: compressed, encrypted, or replaced by a claim check.

Headers say what was done to a value. It is undone in this order: fetch the value of
a claim check, decrypt, decompress. Independent of Django and of Spark, as writers,
consumers and Spark's workers use the same functions.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Final, NamedTuple

from ...exceptions import ConfigurationError, ConsumingError, install_command
from ...wording import number_in

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CONTENT_ENCODING: Final = "content-encoding"
GZIP: Final = "gzip"

ENCRYPTION: Final = "encryption"
SCHEME: Final = "A256GCM"
"""AES-256-GCM: a nonce of 12 bytes, the ciphertext, a tag of 16 bytes."""
KEY_ID: Final = "encryption-key"
"""Id of a key that encrypts the values of many messages."""
SUBJECT_KEY_ID: Final = "encryption-subject-key"
"""UUID of a key that encrypts the values of one subject."""
ERASED: Final = "encryption-erased"
"""Id of the key, on a message whose key was deleted."""

CLAIM_CHECK: Final = "claim-check"
"""Name of the file that holds the value."""
CLAIM_CHECK_SHA256: Final = "claim-check-sha256"
CLAIM_CHECK_SIZE: Final = "claim-check-size"

MAX_UNWRAPPED_BYTES: Final = 100_000_000
"""Bytes of the largest value that is decompressed or fetched."""

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def read_keys(text: str) -> dict[str, bytes]:
    """
    Parse the keys of a variable or a file: `id:key`, separated by white space.

    The first key encrypts, all decrypt. A key is 32 random bytes in Base64.

    Returns:
        The keys by id, in their order.

    Raises:
        ConfigurationError: names the position of the first malformed key.
    """
    keys: dict[str, bytes] = {}
    for number, pair in enumerate(text.split(), start=1):
        key_id, _, encoded = pair.partition(":")
        try:
            key = b64decode(encoded, validate=True)
        except ValueError:
            key = b""
        if not key_id or len(key) != _KEY_BYTES or key_id in keys:
            # Neither is shown: without a colon the id would be the key.
            raise ConfigurationError(
                f"keys: number {number} must be `id:key`, with an id of its own and 32"
                " bytes in Base64."
            ) from None
        keys[key_id] = key
    return keys


def decompressed(value: bytes, *, most: int = MAX_UNWRAPPED_BYTES) -> bytes:
    """
    Return what gzip has compressed.

    Args:
        most: Maximum size of the result, in bytes.

    Raises:
        ConsumingError: It is not gzip, or the result is larger.
    """
    found: bytes | None
    try:
        with gzip.GzipFile(fileobj=BytesIO(value)) as file:
            found = file.read(most + 1)
    except (OSError, EOFError, zlib.error):
        found = None
    if found is None or not value:
        raise ConsumingError(
            f"The value is not gzip, although its header {CONTENT_ENCODING} says so. Is"
            " compression the first of the payload classes in MIDDLEWARE?"
        )
    if len(found) > most:
        raise ConsumingError(
            f"The value has more than {most} bytes when it is decompressed; raise the"
            " limit if its writer is trusted."
        )
    return found


def origins(topic: str) -> Iterator[str]:
    """
    Yield the topics whose messages may have come to this topic.

    Itself, and what is before each dot of its name: `orders` for `orders.dlt`,
    `orders.billing.retry-1` and `orders.replay`.
    """
    yield topic
    while "." in topic:
        topic = topic.rpartition(".")[0]
        yield topic


def bound_to(
    *, topic: str, key: bytes, key_id: str, content_encoding: str | None
) -> bytes:
    """
    Return the associated data of an encrypted value: decryption needs the same.

    Each field follows its length in four bytes, big-endian. So a value can be moved
    neither to another topic nor to another key, and a changed header cannot have it
    decompressed or left compressed.

    Args:
        topic: The topic to which the message was stashed.
        key: The message's key; empty for none.
    """
    fields = (
        *(SCHEME.encode(), key_id.encode(), topic.encode(), key),
        (content_encoding or "").encode(),
    )
    return b"".join(len(data).to_bytes(4, "big") + data for data in fields)


def encrypted(value: bytes, key: bytes, bound: bytes) -> bytes:
    """
    Return nonce, ciphertext and tag.

    Args:
        key: 32 bytes.
        bound: Associated data, which is authenticated and not part of the result.

    Raises:
        ConfigurationError: The key is malformed, or the extra is not installed.
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(key).encrypt(nonce, value, bound)


def decrypted(
    value: bytes,
    key: bytes,
    *,
    key_id: str,
    topics: Iterable[str],
    message_key: bytes | None,
    content_encoding: str | None,
) -> bytes:
    """
    Return the value of a message that was encrypted for one of these topics.

    Args:
        message_key: The message's key.

    Raises:
        ConsumingError: It was not, or it was changed since.
        ConfigurationError: The key is malformed, or the extra is not installed.
    """
    bounds = (
        bound_to(
            topic=topic,
            key=message_key or b"",
            key_id=key_id,
            content_encoding=content_encoding,
        )
        for topic in topics
    )
    return _decrypted(value, key, bounds)


def _decrypted(value: bytes, key: bytes, bounds: Iterable[bytes]) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    nonce, rest = value[:_NONCE_BYTES], value[_NONCE_BYTES:]
    for bound in bounds:
        with suppress(InvalidTag, ValueError):
            return cipher.decrypt(nonce, rest, bound)
    raise ConsumingError(
        "The value cannot be decrypted: it was changed, belongs to another topic or"
        " key, or another key with the same id encrypted it."
    )


def wrapped_key(data_key: bytes, master_key: bytes, key_id: str) -> bytes:
    """Return a subject's key, encrypted by a master key."""
    return encrypted(data_key, master_key, key_id.encode())


def unwrapped_key(wrapped: bytes, master_key: bytes, key_id: str) -> bytes:
    """
    Return a subject's key.

    Raises:
        ConsumingError: Another master key, or for another key id, encrypted it.
    """
    return _decrypted(wrapped, master_key, [key_id.encode()])


def check_scheme(scheme: str | None) -> None:
    """Raise `ConsumingError` unless the value of the header `encryption` is known."""
    if scheme != SCHEME:
        raise ConsumingError(
            f"The header {ENCRYPTION} must be {SCHEME}; upgrade the consumer if its"
            " writer knows another one."
        )


def _cipher(key: bytes) -> AESGCM:
    # Only those who encrypt need the package.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "The package cryptography is not installed. Run"
            f" {install_command('encryption')}."
        ) from error
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(f"A key has {len(key)} bytes; it must have 32.")
    return AESGCM(key)


class Claim(NamedTuple):
    """What the headers say of a value that is in a file."""

    name: str
    sha256: str
    size: int
    """Of the file, in bytes."""


def find_claim(
    header: Callable[[str], str | None],
    *,
    folder: str = "",
    most: int = MAX_UNWRAPPED_BYTES,
) -> Claim | None:
    """
    Return the claim check of a message; None if its value is in the message.

    Args:
        header: Returns the text of a header, or None.
        folder: Where the file must be; empty: anywhere below the storage.
        most: Maximum size, in bytes.

    Raises:
        ConsumingError: The file is not below the folder, or too large.
    """
    name = header(CLAIM_CHECK)
    if name is None:
        return None
    parts = name.split("/")
    above = folder.split("/") if folder else []
    is_plain = not {"", ".", ".."} & {*parts} and not {"\\", "\0", ":"} & {*name}
    if not is_plain or parts[: len(above)] != above or len(parts) <= len(above):
        raise ConsumingError(
            f"The header {CLAIM_CHECK} does not name a file"
            f" {f'in {folder!r}' if folder else 'of the storage'}."
        )
    size = number_in(header(CLAIM_CHECK_SIZE) or "", 15)
    if size is None:
        raise ConsumingError(f"The header {CLAIM_CHECK_SIZE} is not a number of bytes.")
    if size > most:
        raise ConsumingError(
            f"The value of the claim check has {size} bytes, more than {most}; raise"
            " the limit if its writer is trusted."
        )
    return Claim(name, header(CLAIM_CHECK_SHA256) or "", size)


def missing_file(claim: Claim) -> ConsumingError:
    """Return the error for a claim check without its file."""
    return ConsumingError(
        f"The file {claim.name!r} does not exist. Keep files longer than the topic"
        " keeps messages."
    )


def verified(claim: Claim, value: bytes) -> bytes:
    """
    Return the value of a claim check.

    Raises:
        ConsumingError: It has another size or digest.
    """
    found = len(value), hashlib.sha256(value).hexdigest()
    if found != (claim.size, claim.sha256):
        raise ConsumingError(
            f"The file {claim.name!r} is not the value of the message: its size or"
            " SHA-256 differs."
        )
    return value
