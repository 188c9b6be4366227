"""
Crypto-shredding: values that can be erased wherever they are, by deleting a key.

Each subject, such as a customer, has a data key of its own in a table, and it encrypts
the values about that subject. `forget()` deletes the row: what is in the outbox, in
topics, dead letters, archives and lakes cannot be decrypted any more. What is stashed
about the subject later has a new key.
"""

from __future__ import annotations

import os
import uuid
from functools import lru_cache
from typing import ClassVar, Final

from django.db import connections, models, router, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..clock import boottime
from ..exceptions import ConsumingError, InvalidMessage, StashError
from ..message.outgoing import Message
from ..pipeline.payloads.wrapping import SUBJECT_KEY_ID, unwrapped_key, wrapped_key
from .encryption import Encrypted

LONGEST_SUBJECT: Final = 255
"""Characters of a subject."""

_LOCK: Final = """
-- outbox: lock the key of a subject
SELECT key_id, master, wrapped FROM {table} WHERE subject = %s FOR KEY SHARE
"""
"""Deleting the row waits for the transactions that have this lock, which do not wait
for each other."""

_LOCK_SUBJECT: Final = """
-- outbox: lock a subject
SELECT {lock}(hashtextextended(%s, hashtextextended(%s, 0)))
"""
"""Who deletes a key does not see one that an open transaction has just made."""

_ATTEMPTS: Final = 3
"""How often a key is created that `forget()` deletes at the same moment."""


class SubjectKeyManager(models.Manager["SubjectKey"]):
    """The operations on the table; all use the database for writes."""

    def forget(self, subject: str) -> bool:
        """
        Delete the key of a subject; return whether there was one.

        Waits for the transactions that have stashed messages about the subject. When
        the caller's transaction commits, no process can decrypt their values, except
        those that have the key in memory: see `Shredded.cache_seconds`.

        At the isolation level REPEATABLE READ it does not see a key that was made
        after the caller's transaction had begun.
        """
        with transaction.atomic(self.write_alias(), savepoint=False):
            self.lock(subject)
            deleted, _rows = self.writable().filter(subject=subject).delete()
        return bool(deleted)

    def writable(self) -> models.QuerySet[SubjectKey]:
        """Return all rows, of the database for writes."""
        return self.using(self.write_alias())

    def write_alias(self) -> str:
        """Return the alias of the database for writes."""
        return self._db or router.db_for_write(self.model)

    def lock(self, subject: str, *, shared: bool = False) -> None:
        """
        Lock a subject until the end of the transaction, whether or not it has a key.

        Args:
            shared: For those who make a key, who do not wait for each other.
        """
        lock = f"pg_advisory_xact_lock{'_shared' if shared else ''}"
        with connections[self.write_alias()].cursor() as cursor:
            cursor.execute(
                _LOCK_SUBJECT.format(lock=lock), [subject, self.model._meta.db_table]
            )

    def locked(self, subject: str) -> tuple[uuid.UUID, str, bytes] | None:
        """Return key id, master key's id and encrypted key; lock them until the end."""
        connection = connections[self.write_alias()]
        table = connection.ops.quote_name(self.model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(_LOCK.format(table=table), [subject])
            row = cursor.fetchone()
        return None if row is None else (row[0], row[1], bytes(row[2]))


class SubjectKey(models.Model):
    """
    The data key of each subject, encrypted by a master key.

    Subclass it in an app of yours, in the database of the outbox.
    """

    key_id = models.UUIDField(_("key id"), primary_key=True, default=uuid.uuid4)
    subject = models.CharField(_("subject"), max_length=LONGEST_SUBJECT, unique=True)
    master = models.CharField(_("id of the master key"), max_length=100)
    wrapped = models.BinaryField(_("encrypted key"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    objects: ClassVar[SubjectKeyManager] = SubjectKeyManager()

    class Meta:
        abstract = True
        verbose_name = _("subject key")
        verbose_name_plural = _("subject keys")

    def __str__(self) -> str:
        return str(self.key_id)


class Shredded(Encrypted):
    """
    Encrypts each value with the key of its subject.

    A subclass names the table (`model`) and returns the master keys from `keys()`: the
    first encrypts new data keys, all decrypt. The message has the header
    `encryption-subject-key` instead of `encryption-key`.

    When the key was deleted, the handler gets no value, as with a tombstone, and the
    header `encryption-erased` with the key's id. That is no failure.
    """

    key_header: ClassVar[str] = SUBJECT_KEY_ID

    model: type[SubjectKey]
    """The table of your project."""

    cache_seconds: float = 60.0
    """Seconds for which a consumer may use a key that it has read; so long after
    `forget()` it may still decrypt."""

    cache_size: int = 1_000
    """Keys that a consumer remembers at most."""

    def __init__(self) -> None:
        self._known = lru_cache(maxsize=self.cache_size)(self._read)
        self._known_until = 0.0

    def subject(self, message: Message) -> str:
        """Return what a message is about; by default its key."""
        return message.key

    def writing_key(self, message: Message) -> tuple[str, bytes]:
        """
        Return the id of the subject's key, and the key, which is made if necessary.

        Never from memory: a process that missed `forget()` would encrypt for nobody.

        Raises:
            InvalidMessage: The subject is empty or too long.
            ConsumingError: The master key of an existing key is not configured.
            StashError: Others deleted the key each time; try later.
        """
        subject = self.subject(message)
        if not 0 < len(subject) <= LONGEST_SUBJECT:
            raise InvalidMessage(
                f"subject: {len(subject)} characters; {type(self).__name__}.subject() "
                f"must return 1 to {LONGEST_SUBJECT}. Give the message a key, or "
                "override subject() or covers()."
            )
        for _attempt in range(_ATTEMPTS):
            if (found := self.model.objects.locked(subject)) is not None:
                key_id, master, wrapped = found
                return str(key_id), self._unwrapped(key_id, master, wrapped)
            self._create(subject)
        raise StashError("The subject's key was deleted again and again; try later.")

    def reading_key(self, key_id: str) -> bytes | None:
        """
        Return the key; None if its subject was forgotten.

        Raises:
            ConsumingError: The id is not a UUID, or the key's master key is not
                configured.
        """
        try:
            found = uuid.UUID(key_id)
        except ValueError:
            raise ConsumingError(
                f"The header {self.key_header} is not a UUID."
            ) from None
        now = boottime()
        if now >= self._known_until:
            self._known.cache_clear()
            self._known_until = now + self.cache_seconds
        return self._known(found)

    def rewrap(self) -> int:
        """
        Encrypt with the first master key what an older one encrypts.

        After that the older master keys are not needed any more; values stay as they
        are.

        Returns:
            The number of keys that it has encrypted.
        """
        master, master_key = self.first_key()
        rows = self.model.objects.writable()
        count = 0
        for row in rows.exclude(master=master).iterator(chunk_size=1_000):
            data_key = self._unwrapped(row.key_id, row.master, bytes(row.wrapped))
            wrapped = wrapped_key(data_key, master_key, str(row.key_id))
            # Not its subject, and not if it was deleted meanwhile.
            mine = rows.filter(pk=row.pk, master=row.master)
            count += mine.update(master=master, wrapped=wrapped)
        return count

    def _create(self, subject: str) -> None:
        """Make a key, unless another transaction has."""
        master, master_key = self.first_key()
        key_id = uuid.uuid4()
        row = self.model(
            key_id=key_id,
            subject=subject,
            master=master,
            wrapped=wrapped_key(os.urandom(32), master_key, str(key_id)),
        )
        self.model.objects.lock(subject, shared=True)
        rows = self.model.objects.writable()
        rows.bulk_create([row], ignore_conflicts=True)

    def _read(self, key_id: uuid.UUID) -> bytes | None:
        rows = self.model.objects.writable().filter(key_id=key_id)
        found = rows.values_list("master", "wrapped").first()
        return None if found is None else self._unwrapped(key_id, *found)

    def _unwrapped(self, key_id: uuid.UUID, master: str, wrapped: bytes) -> bytes:
        master_key = self.keys().get(master)
        if master_key is None:
            raise ConsumingError(
                f"{type(self).__name__}.keys() has no master key {master!r}; add it, "
                "and keep it until rewrap() has run."
            )
        return unwrapped_key(bytes(wrapped), master_key, str(key_id))
