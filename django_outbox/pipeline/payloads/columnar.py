"""
Decodes whole columns: Arrow arrays in, Arrow arrays and reasons out.

The functions behind the two column expressions run in Spark's Python workers.
Only topics and values are sent there, and only those of topics that declare
such a schema.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from ...wording import first_line
from .declared import Encoded
from .decoder import Decoder, make_decoder
from .framing import MAGIC, PREFIX_BYTES, Undecodable, schema_id
from .registry import Writers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_MAX_REASON_LENGTH: Final = 200
"""Maximum number of characters of a reason."""

_INVALID: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""Errors that Arrow raises for a value that its type cannot hold."""


def decode(
    values: Iterable[bytes], decoder: Decoder
) -> tuple[pa.Array, list[str | None]]:
    """
    Decode values; an invalid one becomes null and gets a reason.

    Returns:
        An array of structs with the decoder's columns, and a list of the same
        length with a reason for each invalid value and None for the others.
    """
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for value in values:
        try:
            row, reason = decoder.decode(value), None
        except Exception as error:  # noqa: BLE001 - every error means an invalid value
            row, reason = None, first_line(error)[:_MAX_REASON_LENGTH]
        rows.append(row)
        reasons.append(reason)
    kind = to_arrow_type(decoder.columns, timezone="UTC")
    try:
        return pa.array(rows, kind), reasons
    except _INVALID:
        for index, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except _INVALID as error:
                rows[index], reasons[index] = (
                    None,
                    first_line(error)[:_MAX_REASON_LENGTH],
                )
        return pa.array(rows, kind), reasons


def reason(schemas: Mapping[str, Encoded], writers: Mapping[str, Writers]) -> Column:
    """
    Return why `value` does not match the schema of its `topic`; null if it does.

    Args:
        schemas: The schemas of all topics in the frame.
        writers: The writers' schemas of the values, by topic.
    """
    shipped = {
        topic: (_without_registry(schema), writers.get(topic, ()))
        for topic, schema in schemas.items()
    }

    def check(topics: pa.Array, values: pa.Array) -> pa.Array:
        found: list[str | None] = [None] * len(topics)
        indexes: defaultdict[str, list[int]] = defaultdict(list)
        for index, topic in enumerate(topics.to_pylist()):
            indexes[topic].append(index)
        for topic, of_topic in indexes.items():
            mine = values.take(pa.array(of_topic)).to_pylist()
            _, reasons = decode(mine, make_decoder(*shipped[topic]))
            for index, text in zip(of_topic, reasons, strict=True):
                found[index] = text
        return pa.array(found, pa.string())

    return _in_workers(check, "string", "topic", "value")


def payload(schema: Encoded, writers: Writers) -> Column:
    """Return the decoded column `value`, a struct; null where it is invalid."""
    shipped = (_without_registry(schema), writers)

    def read(values: pa.Array) -> pa.Array:
        return decode(values.to_pylist(), make_decoder(*shipped))[0]

    columns = make_decoder(schema).columns
    return _in_workers(read, columns, "value")


def find_writers(
    records: DataFrame, schemas: Mapping[str, Encoded]
) -> dict[str, Writers]:
    """
    Fetch the writers' schemas for all schema ids in the values of these topics.

    Scans the records if a topic has a registry.

    Args:
        records: At least the columns `topic` and `value`.

    Raises:
        RegistryUnavailable: the registry did not answer.
    """
    registries = {
        topic: schema.registry for topic, schema in schemas.items() if schema.registry
    }
    if not registries:
        return {}
    is_framed = F.substring("value", 1, 1) == F.lit(MAGIC)
    prefixes = (
        records.where(F.col("topic").isin(*registries) & is_framed)
        .select("topic", F.substring("value", 1, PREFIX_BYTES).alias("prefix"))
        .distinct()
    )
    found: defaultdict[str, dict[int, Any]] = defaultdict(dict)
    for row in prefixes.collect():
        try:
            id = schema_id(bytes(row["prefix"]))  # noqa: A001 - its name there
        except Undecodable:
            continue
        schema = registries[row["topic"]].schema(id)
        found[row["topic"]][id] = schema or f"the registry has no schema {id}"
    return {topic: tuple(sorted(ids.items())) for topic, ids in found.items()}


def _in_workers(
    function: Callable[..., pa.Array], returns: StructType | str, *columns: str
) -> Column:
    """Make a column from a function, which must annotate its arguments with `pa`."""
    made = F.arrow_udf(function, returns)  # type: ignore[attr-defined] # not in its stub
    # Otherwise Spark evaluates it for the column and again for its filter.
    computed: Column = made.asNondeterministic()(*columns)
    return computed


def _without_registry(schema: Encoded) -> Encoded:
    """Remove the registry and its password, which workers do not need."""
    return replace(schema, registry=None)
