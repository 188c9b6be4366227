"""
From rows of bronze to records: headers become columns, payloads are parsed.

Everything here is a pure column expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyspark.errors import ParseException
from pyspark.sql import functions as F

from ...exceptions import ConfigurationError
from ...wording import first_line
from ..payloads.declared import Encoded
from .epochs import RANKS
from .tables import RECORD_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

BACKFILL: Final = "outbox-backfill"
"""Header with the table's name; only messages of a backfill have it."""

INVALID: Final = "the value does not match the topic's schema"
"""The reason in `quarantine`; for Avro and Protobuf, details follow."""

_CORRUPT: Final = "_unparsable"
"""Column in which Spark puts text that does not match the schema."""

_OURS: Final = (
    *("outbox-message-id", "outbox-id"),
    *("outbox-source", "outbox-created-at"),
)
"""The last headers of a record from the relay, in order."""

_CREATION_TIMES: Final = (0, 253_402_300_799_999_999)
"""First and last microsecond of the years 1970 to 9999: what Python can show."""


def fits(column: str, pattern: str) -> Column:
    """Whether a Java regular expression matches the whole name."""
    return F.col(column).rlike(f"^({pattern})$")


def header(name: str) -> Column:
    """
    Return the text of a header, or null.

    The last one wins, because ours follow the user's.
    """
    found = F.filter("headers", lambda h: h["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _own_headers() -> dict[str, Column]:
    """
    Return the texts of the relay's headers.

    Looks at the positions where the relay puts them. Only other records need a
    search through all headers, which takes several times as long.
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


def in_range(time: Column) -> Column:
    """Return a time, or null for one before 1970 or after the year 9999."""
    return F.when(F.unix_micros(time).between(*_CREATION_TIMES), time)


def _created_at(text: Column) -> Column:
    return in_range(F.timestamp_micros(text.try_cast("bigint")))


def _id(text: Column) -> Column:
    """Return an id, or null for text that is no id of an outbox."""
    number = text.try_cast("bigint")
    return F.when(number.between(0, RANKS - 1), number)


def has_bad_creation_time() -> Column:
    """
    Whether the header `outbox-created-at` is there and is not a creation time.

    For rows with `headers`. A creation time is a number of microseconds since 1970,
    up to the end of the year 9999; `parse()` returns null for everything else.
    """
    text = _own_headers()["outbox-created-at"]
    return text.isNotNull() & _created_at(text).isNull()


def parse(bronze: DataFrame) -> DataFrame:
    """
    Parse rows of bronze: `source`, `id` and `created_at` are null without the header.

    `id` and `created_at` are also null if the header is out of range.
    """
    own = _own_headers()
    return (
        bronze.withColumns(
            {
                "source": own["outbox-source"],
                "id": _id(own["outbox-id"]),
                "message_id": own["outbox-message-id"],
                "created_at": _created_at(own["outbox-created-at"]),
                "is_deleted": F.col("value").isNull(),
            }
        )
        .withColumn("message_id", F.coalesce("message_id", F.col("id").cast("string")))
        .select(*RECORD_COLUMNS)
    )


def is_from_outbox() -> Column:
    """Whether a parsed record has the headers of an outbox."""
    return F.col("source").isNotNull() & F.col("id").isNotNull()


def is_promised() -> Column:
    """Whether a record was in an outbox's table; messages of a backfill were not."""
    is_backfilled = F.exists("headers", lambda h: h["key"] == BACKFILL)
    return ~F.coalesce(is_backfilled, F.lit(False))  # noqa: FBT003 - the literal itself


def with_payload(records: DataFrame, *, topic: str, schema: str | Encoded) -> DataFrame:
    """
    Return the records of one topic whose value matches, with the column `payload`.

    Tombstones have none. If the topic has a registry, this call asks it for all
    schema ids of the records.

    Args:
        schema: A value of `PipelineSettings.schemas`; for JSON, columns in the
            syntax of `CREATE TABLE`, where `NOT NULL` makes a field required.

    Raises:
        ConfigurationError: the schema is invalid, or the extra is not installed.
        RegistryUnavailable: the registry did not answer.
    """
    of_topic = records.where(F.col("topic") == topic)
    is_deleted = F.col("is_deleted")
    if isinstance(schema, str):
        parsed = of_topic.withColumn("payload", _payload(schema))
        is_valid = ~_is_unparsable(F.col("payload"), schema)
        payload = F.col("payload").dropFields(_CORRUPT)
    else:
        from ..payloads import columnar

        writers = columnar.find_writers(of_topic.where(~is_deleted), {topic: schema})
        decoded = columnar.payload(schema, writers.get(topic, ()))
        parsed = of_topic.withColumn("payload", decoded)
        is_valid, payload = F.col("payload").isNotNull(), F.col("payload")
    return parsed.where(is_deleted | is_valid).withColumn(
        "payload", F.when(~is_deleted, payload)
    )


def typed(records: DataFrame, *, topic: str, schema: str | Encoded) -> DataFrame:
    """
    Return the messages of one topic with a column for each field of the payload.

    Arguments and errors are those of `with_payload()`. A field with the name of
    another column, such as `id`, becomes `payload_id`.
    """
    found = with_payload(records, topic=topic, schema=schema).where("NOT is_deleted")
    place = ("source", "id", "created_at", "partition", "offset")
    kind = cast("StructType", found.schema["payload"].dataType)
    fields = [
        F.col("payload")[name].alias(
            f"payload_{name}" if name.lower() in {*place, "key"} else name
        )
        for name in kind.names
    ]
    key = F.col("key").cast("string").alias("key")
    return found.select(*place, key, *fields)


def check_columns(schemas: Mapping[str, str | Encoded]) -> dict[str, int]:
    """
    Return the number of columns of each topic with JSON values.

    Raises:
        ConfigurationError: names the first schema that Spark cannot parse.
    """
    counts = {}
    for topic, schema in schemas.items():
        if isinstance(schema, str):
            try:
                counts[topic] = len(columns(schema).fields) - 1
            except ParseException as error:
                reason = first_line(error)
                raise ConfigurationError(
                    f"schemas: {topic}: {schema!r} is not a list of columns in the"
                    f" syntax of `CREATE TABLE`: {reason}"
                ) from error
    return counts


def invalid(records: DataFrame, schemas: Mapping[str, str | Encoded]) -> DataFrame:
    """
    Return the records whose value does not match the schema, with a `reason`.

    Raises:
        RegistryUnavailable: the registry did not answer; no record was checked.
    """
    texts = {t: schema for t, schema in schemas.items() if isinstance(schema, str)}
    found = records.where(is_unparsable(texts)).withColumn("reason", F.lit(INVALID))
    encoded = {
        t: schema for t, schema in schemas.items() if isinstance(schema, Encoded)
    }
    if not encoded:
        return found
    from ..payloads import columnar

    # Only these records are decoded in Python.
    checked = records.where(F.col("topic").isin(*encoded) & ~F.col("is_deleted"))
    reason = columnar.reason(encoded, columnar.find_writers(checked, encoded))
    return found.unionByName(
        checked.withColumn("reason", reason)
        .where("reason IS NOT NULL")
        .withColumn("reason", F.concat(F.lit(f"{INVALID}: "), F.col("reason")))
    )


def is_unparsable(schemas: Mapping[str, str]) -> Column:
    """Whether a record's value does not match the JSON schema of its topic."""
    verdict = F.lit(False)  # noqa: FBT003 - the literal itself
    for topic, schema in schemas.items():
        is_invalid = _is_unparsable(_payload(schema), schema)
        is_of_topic = (F.col("topic") == topic) & ~F.col("is_deleted")
        verdict = F.when(is_of_topic, is_invalid).otherwise(verdict)
    return verdict


def _payload(schema: str) -> Column:
    return F.from_json(
        F.col("value").cast("string"),
        _with_corrupt(schema),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )


def _is_unparsable(payload: Column, schema: str) -> Column:
    # Null for an empty text or `null`; otherwise the column has the corrupt text.
    verdict = payload.isNull() | payload[_CORRUPT].isNotNull()
    for column in columns(schema).fields:
        if not column.nullable:
            verdict = verdict | payload[column.name].isNull()
    return verdict


def columns(schema: str) -> StructType:
    """Return the columns of a JSON schema, and one for text that does not match."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(_with_corrupt(schema))
    assert isinstance(found, StructType)
    return found


def _with_corrupt(schema: str) -> str:
    return f"{schema}, {_CORRUPT} STRING"
