"""
Large values in a storage of Django: the message carries a reference and a digest.

A file is written before its message commits, so a message never lacks its file. A
transaction that rolls back leaves its files behind; they are removed with all others
of their day, when they are old enough.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

from ..exceptions import ConfigurationError, InvalidMessage
from ..message.incoming import ConsumedMessage
from ..message.middleware import Handle, Middleware
from ..message.outgoing import Message
from ..pipeline.payloads.wrapping import (
    CLAIM_CHECK,
    CLAIM_CHECK_SHA256,
    CLAIM_CHECK_SIZE,
    MAX_UNWRAPPED_BYTES,
    Claim,
    find_claim,
    missing_file,
    verified,
)
from .payload_headers import headers_of, refuse_header, value_of, with_value


class ClaimCheck(Middleware):
    """
    Saves large values in a storage, and reads them for the handler.

    The message has an empty value and the headers `claim-check` (the file's name),
    `claim-check-sha256` and `claim-check-size`. A tombstone stays a tombstone. The
    last payload class in MIDDLEWARE.
    """

    limit: int = 500_000
    """Bytes of the largest value that stays in its message."""

    most: int = MAX_UNWRAPPED_BYTES
    """Bytes of the largest value that is saved or read."""

    storage: str = "default"
    """Alias of the storage, in Django's setting STORAGES."""

    folder: str = "outbox"
    """Folder in the storage that holds nothing else, with a folder for each day."""

    def __init__(self) -> None:
        if {"", ".", ".."} & {*self.folder.split("/")}:
            raise ConfigurationError(
                f"{type(self).__name__}.folder: {self.folder!r} must be the path of a "
                "folder, without a slash at its ends."
            )

    def stash(self, message: Message) -> Message:
        """
        Save a large value under the date and its digest.

        Raises:
            InvalidMessage: The value is larger than `most`, or the message has a
                header `claim-check` of its own.
        """
        refuse_header(message, CLAIM_CHECK, reason="only ClaimCheck may set it")
        value = value_of(message)
        if value is None or len(value) <= self.limit:
            return message
        if len(value) > self.most:
            raise InvalidMessage(
                f"value: {len(value)} bytes exceed {type(self).__name__}.most "
                f"({self.most}). Raise it, also for the consumers."
            )
        digest = hashlib.sha256(value).hexdigest()
        name = f"{self.folder}/{datetime.now(UTC).date()}/{digest}"
        # Not the name that was asked for, if a file has it already.
        name = self._storage().save(name, ContentFile(value))
        headers_of(message).extend(
            [
                (CLAIM_CHECK, name),
                (CLAIM_CHECK_SHA256, digest),
                (CLAIM_CHECK_SIZE, str(len(value))),
            ]
        )
        message.value = b""
        return message

    def consume(self, message: ConsumedMessage, handle: Handle) -> None:
        """Read the value; the handler does not see the headers."""
        if message.value is not None:
            claim = find_claim(message.header, folder=self.folder, most=self.most)
            if claim is not None:
                names = (CLAIM_CHECK, CLAIM_CHECK_SHA256, CLAIM_CHECK_SIZE)
                message = with_value(message, self._read(claim), without=names)
        handle(message)

    def remove_older(self, *, than: timedelta) -> int:
        """
        Remove the files of all days, in UTC, that ended longer ago than this.

        For a periodic job. A message whose file was removed cannot be handled any more,
        so choose more than the longest time that one may wait in the database, plus
        the longest retention of the topics.

        Returns:
            The number of files that were removed.
        """
        storage, removed = self._storage(), 0
        today = (datetime.now(UTC) - than).date()
        for day in self._days():
            if day >= today:
                continue
            folder = f"{self.folder}/{day}"
            # Another process may be removing the same days.
            with suppress(FileNotFoundError):
                for name in storage.listdir(folder)[1]:
                    storage.delete(f"{folder}/{name}")
                    removed += 1
                storage.delete(folder)
        return removed

    def _days(self) -> list[date]:
        try:
            names, _ = self._storage().listdir(self.folder)
        except FileNotFoundError:
            return []
        days = []
        for name in names:
            try:
                days.append(date.fromisoformat(name))
            except ValueError:
                # Not a folder of ours.
                continue
        return sorted(days)

    def _read(self, claim: Claim) -> bytes:
        try:
            with self._storage().open(claim.name) as file:
                return verified(claim, file.read(claim.size + 1))
        except FileNotFoundError:
            raise missing_file(claim) from None

    def _storage(self) -> Storage:
        return storages[self.storage]
