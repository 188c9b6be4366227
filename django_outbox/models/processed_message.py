"""
Keys of processed messages, and offsets of consumers.

Both are written in the transaction of the effects, so that they commit or roll back
together.
"""

from __future__ import annotations

from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connections, models
from django.db.models import Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..conf import schema_settings
from .aging import AgedQuerySet

KEY_LENGTH: Final = 512
"""Longest key in bytes: with its consumer it must fit an index entry."""
CONSUMER_LENGTH: Final = 255
"""Longest name of a consumer in bytes."""

_CLAIM: Final = """\
-- outbox: once
INSERT INTO {table} (consumer, key) VALUES (%(consumer)s, %(key)s)
ON CONFLICT DO NOTHING"""

_CLAIM_WITH_TIMEOUT: Final = """\
-- outbox: once
INSERT INTO {table} (consumer, key) SELECT %(consumer)s, %(key)s
FROM set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true)
ON CONFLICT DO NOTHING"""

_ADVANCE: Final = """\
-- outbox: advance
INSERT INTO {table} AS stored (group_id, topic, partition, next_offset, topic_id)
SELECT %(group_id)s::varchar, %(topic)s::varchar, %(partition)s::integer,
%(offset)s::bigint + 1, %(topic_id)s::varchar
WHERE %(since)s = 0 OR EXISTS (SELECT FROM {table} WHERE group_id = %(group_id)s
AND topic = %(topic)s AND partition = %(partition)s)
ON CONFLICT (group_id, topic, partition) DO UPDATE
SET next_offset = EXCLUDED.next_offset, topic_id = EXCLUDED.topic_id,
updated_at = statement_timestamp()
WHERE stored.next_offset BETWEEN %(since)s AND %(offset)s"""


class ProcessedQuerySet(AgedQuerySet["ProcessedMessage"]):
    """Queries of processed keys."""

    aged_by = "processed_at"

    def claim(self, consumer: str, key: str, *, idle_timeout: float = 0.0) -> bool:
        """
        Record the key in the open transaction; return False if it was known.

        Waits for the end of another transaction that claims the same key.

        Args:
            idle_timeout: Seconds without a statement after which PostgreSQL ends
                the transaction; 0 = as the server is configured.
        """
        self._for_write = True
        values = {"consumer": consumer, "key": key}
        statement = _CLAIM
        if idle_timeout:
            statement = _CLAIM_WITH_TIMEOUT
            values["idle_timeout"] = str(round(idle_timeout * 1000))
        return _execute(self.db, self.model, statement, values) == 1


class ProcessedMessage(models.Model):
    """A key that a consumer has processed, with its optional response."""

    pk = models.CompositePrimaryKey("consumer", "key")
    consumer = models.CharField(
        _("consumer"),
        max_length=CONSUMER_LENGTH,
        db_comment="The consumer; each has its own keys.",
    )
    key = models.CharField(
        _("key"),
        max_length=KEY_LENGTH,
        db_comment="The message id, or another unique key.",
    )
    processed_at = models.DateTimeField(
        _("processed at"),
        db_default=Now(),
        # Django names the index after the table, whatever the setting TABLE is.
        db_index=True,
        db_comment="When the transaction of its effects ran.",
    )
    response = models.JSONField(
        _("response"),
        null=True,
        encoder=DjangoJSONEncoder,
        db_comment="Response of the first time; a repeat returns it, too.",
    )

    objects = ProcessedQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_processed"
        db_table_comment = "Keys of messages that were processed: the dedupe window."
        verbose_name = _("processed message")
        verbose_name_plural = _("processed messages")
        ordering = ("consumer", "processed_at")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.consumer}: {self.key}"


class OffsetQuerySet(models.QuerySet["ConsumerOffset"]):
    """Queries of stored offsets."""

    def advance(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        since: int = 0,
        topic_id: str = "",
    ) -> bool:
        """
        Store the next offset in the open transaction; return whether it was.

        A consumer that lost the partition without noticing gets False, because its
        successor has passed the offset. So does one whose database has gone back.

        Args:
            since: The next offset as the caller last knew it; 0 = it knows none.
        """
        place = {"group_id": group_id, "topic": topic, "partition": partition}
        self._for_write = True
        values = {**place, "offset": offset, "since": since, "topic_id": topic_id}
        return _execute(self.db, self.model, _ADVANCE, values) == 1

    def positions(self, group_id: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return next offset and topic id of each partition of a group."""
        rows = self.filter(group_id=group_id)
        return {
            (topic, partition): (offset, topic_id)
            for topic, partition, offset, topic_id in rows.values_list(
                "topic", "partition", "next_offset", "topic_id"
            )
        }

    def rewind(
        self, group_id: str, topic: str, partition: int | None = None, *, to: int = 0
    ) -> int:
        """
        Let a group read a topic, or one partition, from an offset; 0 = the beginning.

        Returns the number of partitions that had a stored offset.
        """
        rows = self.filter(group_id=group_id, topic=topic)
        if partition is not None:
            rows = rows.filter(partition=partition)
        return rows.update(next_offset=Value(to), topic_id=Value(""), updated_at=Now())


class ConsumerOffset(models.Model):
    """The progress of a consumer group, committed with its effects."""

    pk = models.CompositePrimaryKey("group_id", "topic", "partition")
    group_id = models.CharField(
        _("group"), max_length=255, db_comment="The Kafka consumer group."
    )
    topic = models.CharField(_("topic"), max_length=249, db_comment="The topic.")
    partition = models.IntegerField(_("partition"), db_comment="Its partition.")
    next_offset = models.BigIntegerField(
        _("next offset"),
        db_comment=(
            "The first offset that is not processed yet; 0 = from the beginning."
        ),
    )
    topic_id = models.CharField(
        _("topic id"),
        max_length=36,
        blank=True,
        db_default="",
        db_comment="Kafka's id of the topic; changes if it is created again.",
    )
    updated_at = models.DateTimeField(
        _("updated at"),
        db_default=Now(),
        db_comment="Last change of the offset.",
    )

    objects = OffsetQuerySet.as_manager()

    class Meta:
        db_table = f"{schema_settings().TABLE}_offsets"
        db_table_comment = "Offsets of consumers (setting OFFSETS)."
        verbose_name = _("consumer offset")
        verbose_name_plural = _("consumer offsets")
        ordering = ("group_id", "topic", "partition")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.group_id}: {self.topic}/{self.partition} at {self.next_offset}"


def _execute(alias: str, model: type[models.Model], statement: str, values: Any) -> int:
    """Run a statement on the table of a model; return the number of affected rows."""
    connection = connections[alias]
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(table=table), values)
        return int(cursor.rowcount)
