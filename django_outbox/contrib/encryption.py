"""
Values that only those who have a key can read, and that nobody else can change.

AES-256-GCM by the package `cryptography`. A value is bound to its topic and its key:
moved to another message, it cannot be decrypted. Keys, headers and topics are not
encrypted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from ..conf import settings
from ..exceptions import ConfigurationError, ConsumingError
from ..message.incoming import ConsumedMessage
from ..message.limits import check_key
from ..message.middleware import Handle, Middleware, load
from ..message.outgoing import Message
from ..pipeline.payloads.wrapping import (
    CLAIM_CHECK,
    CONTENT_ENCODING,
    ENCRYPTION,
    ERASED,
    KEY_ID,
    SCHEME,
    bound_to,
    check_scheme,
    decrypted,
    encrypted,
    origins,
    read_keys,
)
from .payload_headers import (
    header_of,
    headers_of,
    refuse_header,
    value_of,
    with_value,
)

__all__ = ["Encrypted", "read_keys"]


class Encrypted(Middleware, ABC):
    """
    Encrypts values; a subclass says with which keys.

    The message has the headers `encryption: A256GCM` and `encryption-key`, the id of
    the key. A tombstone stays a tombstone. In MIDDLEWARE it stands after compression,
    which can make nothing of encrypted values, and before the claim check, which
    would save a plain one.
    """

    required: bool = False
    """Whether `consume` refuses values that are not encrypted. Turn it on when the
    topics have no older ones any more."""

    key_header: ClassVar[str] = KEY_ID
    """The header with the id of the key."""

    @abstractmethod
    def keys(self) -> Mapping[str, bytes]:
        """
        Return all keys by their ids: 32 bytes each. The first encrypts, all decrypt.

        Called for each message.
        """

    def covers(self, topic: str) -> bool:
        """
        Return whether values of this topic are encrypted; by default all are.

        Of several classes in MIDDLEWARE, the one that covers a topic reads its values.
        """
        return True

    def origins(self, topic: str) -> Iterable[str]:
        """
        Return the topics to which messages in this topic may have been stashed.

        By default itself, and what is before each dot of its name: dead letters,
        retries and replays go to `orders.dlt` and the like. Override it for copies
        with other names, such as those of MirrorMaker.
        """
        return origins(topic)

    def first_key(self) -> tuple[str, bytes]:
        """
        Return the id of the first key, and the key.

        Raises:
            ConfigurationError: There is none.
        """
        for pair in self.keys().items():
            return pair
        raise ConfigurationError(
            f"{type(self).__name__}.keys() must return at least one key."
        )

    def writing_key(self, message: Message) -> tuple[str, bytes]:
        """Return the id of the key that encrypts this message, and the key."""
        return self.first_key()

    def reading_key(self, key_id: str) -> bytes | None:
        """
        Return the key; None if it was deleted, and the value with it.

        Raises:
            ConsumingError: There is no such key.
        """
        key = self.keys().get(key_id)
        if key is None:
            raise ConsumingError(
                f"{type(self).__name__}.keys() has no key {key_id[:60]!r}; add it, as "
                "long as a topic has messages of it."
            )
        return key

    def _covers(self, message: ConsumedMessage) -> bool:
        return any(map(self.covers, self.origins(message.topic)))

    def _leaves_to_another(self, message: ConsumedMessage) -> bool:
        """Whether another class covers the topic, and this one does not."""
        if self._covers(message):
            return False
        return any(
            one._covers(message)  # noqa: SLF001  # its own kind
            for one in load(settings.MIDDLEWARE)
            if isinstance(one, Encrypted)
        )

    def stash(self, message: Message) -> Message:
        """
        Encrypt the value.

        Raises:
            InvalidMessage: It is encrypted or a claim check already, or its key is not
                valid.
        """
        value = value_of(message)
        if value is None or not self.covers(message.topic):
            return message
        name = type(self).__name__
        refuse_header(message, ENCRYPTION, reason=f"let {name}.covers() return False")
        refuse_header(
            message,
            CLAIM_CHECK,
            reason=f"its file would not be encrypted: move {name} up in MIDDLEWARE",
        )
        check_key(message.key)
        key_id, key = self.writing_key(message)
        bound = bound_to(
            topic=message.topic,
            key=message.key.encode(),
            key_id=key_id,
            content_encoding=header_of(message, CONTENT_ENCODING),
        )
        message.value = encrypted(value, key, bound)
        headers_of(message).extend([(ENCRYPTION, SCHEME), (self.key_header, key_id)])
        return message

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        """Decrypt the value; the handler does not see the headers."""
        handle(message if message.value is None else self._opened(message))

    def _opened(self, message: ConsumedMessage) -> ConsumedMessage:
        key_id = message.header(self.key_header)
        if key_id is None:
            if self.required and self._covers(message):
                raise ConsumingError(
                    f"{type(self).__name__}: the value is not encrypted, and "
                    "`required` is on. Who has sent it?"
                )
            return message
        if self._leaves_to_another(message):
            return message
        check_scheme(message.header(ENCRYPTION))
        key = self.reading_key(key_id)
        names = (ENCRYPTION, self.key_header)
        if key is None:
            added = ((ERASED, key_id.encode()),)
            return with_value(message, None, without=names, added=added)
        assert message.value is not None, "tombstones have returned"
        value = decrypted(
            message.value,
            key,
            key_id=key_id,
            topics=self.origins(message.topic),
            message_key=message.key,
            content_encoding=message.header(CONTENT_ENCODING),
        )
        return with_value(message, value, without=names)
