"""
From a row of bronze to a record: headers taken apart, payloads given columns.

Pure column expressions, used by `refine.py` and `audit.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import ParseException
from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ..payloads.declared import Encoded
from .tables import RECORD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

BACKFILL: Final = "outbox-backfill"
"""The header of a table's rows that were sent as messages: the table's name."""

UNFIT: Final = "the value does not fit the topic's schema"
"""The reason in `quarantine`; for Avro and Protobuf it goes on."""

_CORRUPT: Final = "_unparsable"
"""The column in which Spark keeps a text that does not fit the schema."""


_OURS: Final = (
    *("outbox-message-id", "outbox-id"),
    *("outbox-source", "outbox-created-at"),
)
"""The last headers of a record as the relay sends it, in order."""


def header(name: str) -> Column:
    """
    The text of a header, or null.

    Of several the last one: ours come behind the user's.
    """
    found = F.filter("headers", lambda h: h["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _own_headers() -> dict[str, Column]:
    """
    The texts of the relay's headers.

    They are looked up where the relay puts them; a search through all headers
    takes several times as long, and is for what came another way.
    """
    last = {
        name: F.try_element_at("headers", F.lit(place - len(_OURS)))
        for place, name in enumerate(_OURS)
    }
    is_plain = F.lit(True)  # noqa: FBT003 - the literal itself
    for name, found in last.items():
        is_plain = is_plain & (found["key"] == name)
    return {
        name: F.when(is_plain, found["value"].cast("string")).otherwise(header(name))
        for name, found in last.items()
    }


def parse(bronze: DataFrame) -> DataFrame:
    """The records of bronze; `source` or `id` is null where it has no such header."""
    own = _own_headers()
    created = F.timestamp_micros(own["outbox-created-at"].try_cast("bigint"))
    return (
        bronze.withColumns(
            {
                "source": own["outbox-source"],
                "id": own["outbox-id"].try_cast("bigint"),
                "message_id": own["outbox-message-id"],
                "created_at": created,
                "is_deleted": F.col("value").isNull(),
            }
        )
        .withColumn("message_id", F.coalesce("message_id", F.col("id").cast("string")))
        .select(*RECORD_COLUMNS)
    )


def is_from_outbox() -> Column:
    """Whether a parsed record says which outbox it is from, and its id there."""
    return F.col("source").isNotNull() & F.col("id").isNotNull()


def is_promised() -> Column:
    """Whether an outbox had a record in its table: not the rows of a backfill."""
    is_row = F.exists("headers", lambda h: h["key"] == BACKFILL)
    return ~F.coalesce(is_row, F.lit(False))  # noqa: FBT003 - the literal itself


def typed(records: DataFrame, *, topic: str, schema: str | Encoded) -> DataFrame:
    """
    The records of one topic with the columns of its payload.

    Where a registry knows the writers' schemas it is asked at once, for all
    ids that the records have.

    Args:
        schema: As `PipelineSettings.schemas` has it: for JSON columns as
            `CREATE TABLE` has them, in which `NOT NULL` is a demand.

    Raises:
        ConfigurationError: the schema is of no use, or the extra is missing.
        RegistryUnavailable: the registry gives no answer.
    """
    of_topic = records.where((F.col("topic") == topic) & ~F.col("is_deleted"))
    if isinstance(schema, str):
        parsed = of_topic.withColumn("payload", _payload(schema)).where(
            ~_is_unparsable(F.col("payload"), schema)
        )
        payload = F.col("payload").dropFields(_CORRUPT)
    else:
        from ..payloads import columnar

        writers = columnar.find_writers(of_topic, {topic: schema})
        decoded = columnar.payload(schema, writers.get(topic, ()))
        parsed = of_topic.withColumn("payload", decoded).where("payload IS NOT NULL")
        payload = F.col("payload")
    return parsed.select(
        *("source", "id", "created_at", "partition", "offset"),
        F.col("key").cast("string").alias("key"),
        payload.alias("payload"),
    ).select("source", "id", "created_at", "partition", "offset", "key", "payload.*")


def check_columns(schemas: Mapping[str, str | Encoded]) -> dict[str, int]:
    """
    Return how many columns each topic in JSON has.

    Raises:
        ConfigurationError: names the first one that Spark cannot read.
    """
    counts = {}
    for topic, schema in schemas.items():
        if isinstance(schema, str):
            try:
                counts[topic] = len(_columns(schema).fields) - 1
            except ParseException as error:
                reason = str(error).strip().splitlines()[0]
                raise ConfigurationError(
                    f"schemas: {topic}: {schema!r} are no columns, as `CREATE TABLE`"
                    f" has them: {reason}"
                ) from error
    return counts


def unfit(records: DataFrame, schemas: Mapping[str, str | Encoded]) -> DataFrame:
    """
    The records whose value does not fit their topic's schema, with a `reason`.

    Raises:
        RegistryUnavailable: the registry gives no answer; nothing was judged.
    """
    texts = {t: schema for t, schema in schemas.items() if isinstance(schema, str)}
    found = records.where(is_unparsable(texts)).withColumn("reason", F.lit(UNFIT))
    encoded = {
        t: schema for t, schema in schemas.items() if isinstance(schema, Encoded)
    }
    if not encoded:
        return found
    from ..payloads import columnar

    # Only these go through Python.
    judged = records.where(F.col("topic").isin(*encoded) & ~F.col("is_deleted"))
    reason = columnar.reason(encoded, columnar.find_writers(judged, encoded))
    return found.unionByName(
        judged.withColumn("reason", reason)
        .where("reason IS NOT NULL")
        .withColumn("reason", F.concat(F.lit(f"{UNFIT}: "), F.col("reason")))
    )


def is_unparsable(schemas: Mapping[str, str]) -> Column:
    """Whether a record's value does not fit the schema declared for its topic."""
    verdict = F.lit(False)  # noqa: FBT003 - the literal itself
    for topic, schema in schemas.items():
        unfit = _is_unparsable(_payload(schema), schema)
        is_of_topic = (F.col("topic") == topic) & ~F.col("is_deleted")
        verdict = F.when(is_of_topic, unfit).otherwise(verdict)
    return verdict


def _payload(schema: str) -> Column:
    return F.from_json(
        F.col("value").cast("string"),
        _with_corrupt(schema),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )


def _is_unparsable(payload: Column, schema: str) -> Column:
    # Null for an empty text or for `null`; the corrupt text for all other.
    verdict = payload.isNull() | payload[_CORRUPT].isNotNull()
    for column in _columns(schema).fields:
        if not column.nullable:
            verdict = verdict | payload[column.name].isNull()
    return verdict


def _columns(schema: str) -> StructType:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(_with_corrupt(schema))
    assert isinstance(columns, StructType)
    return columns


def _with_corrupt(schema: str) -> str:
    return f"{schema}, {_CORRUPT} STRING"
