"""
Decodes whole columns: Arrow arrays in, Arrow arrays and reasons out.

`message/record.py` asks for the two column expressions here. Their functions run in
Spark's Python workers, so nothing but topics and values goes there, and only
of the topics that declare such a schema.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from .declared import Encoded
from .decoder import Decoder, make_decoder
from .framing import MAGIC, PREFIX, Undecodable, schema_id
from .registry import Writers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_LONGEST: Final = 200
"""Characters of a reason; the value itself is beside it."""

_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What Arrow says of a value that its type cannot hold."""


def decode(
    values: Iterable[bytes], decoder: Decoder
) -> tuple[pa.Array, list[str | None]]:
    """
    Decode values; null for each that does not fit, and the reason.

    Returns:
        An array of structs with the decoder's columns, and as many texts, null
        where a value fits.
    """
    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for value in values:
        try:
            row, reason = decoder.decode(value), None
        except Exception as error:  # noqa: BLE001 - whatever it is, the value is at fault
            row, reason = None, _say(error)
        rows.append(row)
        reasons.append(reason)
    kind = to_arrow_type(decoder.columns, timezone="UTC")
    try:
        return pa.array(rows, kind), reasons
    except _UNFIT:
        for place, row in enumerate(rows):
            try:
                pa.array([row], kind)
            except _UNFIT as error:
                rows[place], reasons[place] = None, _say(error)
        return pa.array(rows, kind), reasons


def reason(schemas: Mapping[str, Encoded], writers: Mapping[str, Writers]) -> Column:
    """
    Why the column `value` does not fit what its `topic` declares; null if it does.

    Args:
        schemas: Of all topics that there are in the frame.
        writers: What `find_writers` has found for it.
    """
    shipped = {
        topic: (_without_registry(schema), writers.get(topic, ()))
        for topic, schema in schemas.items()
    }

    def judge(topics: pa.Array, values: pa.Array) -> pa.Array:
        found: list[str | None] = [None] * len(topics)
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, topic in enumerate(topics.to_pylist()):
            places[topic].append(place)
        for topic, of_topic in places.items():
            mine = values.take(pa.array(of_topic)).to_pylist()
            _, reasons = decode(mine, make_decoder(*shipped[topic]))
            for place, text in zip(of_topic, reasons, strict=True):
                found[place] = text
        return pa.array(found, pa.string())

    return _in_workers(judge, "string", "topic", "value")


def payload(schema: Encoded, writers: Writers) -> Column:
    """The decoded column `value`, a struct; null where it does not fit."""
    shipped = (_without_registry(schema), writers)

    def read(values: pa.Array) -> pa.Array:
        return decode(values.to_pylist(), make_decoder(*shipped))[0]

    columns = make_decoder(schema).columns
    return _in_workers(read, columns, "value")


def find_writers(
    records: DataFrame, schemas: Mapping[str, Encoded]
) -> dict[str, Writers]:
    """
    Ask the registry for the schemas that the values of these topics name.

    Looks through the records when a topic has a registry.

    Args:
        records: With the columns `topic` and `value`.

    Raises:
        RegistryUnavailable: the registry gives no answer.
    """
    registries = {
        topic: schema.registry for topic, schema in schemas.items() if schema.registry
    }
    if not registries:
        return {}
    is_framed = F.substring("value", 1, 1) == F.lit(MAGIC)
    prefixes = (
        records.where(F.col("topic").isin(*registries) & is_framed)
        .select("topic", F.substring("value", 1, PREFIX).alias("prefix"))
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
    """A column that this function makes; `pa` must be in its annotations."""
    made = F.arrow_udf(function, returns)  # type: ignore[attr-defined] # not in its stub
    # Else Spark would ask once for the column and once more for its filter.
    asked: Column = made.asNondeterministic()(*columns)
    return asked


def _without_registry(schema: Encoded) -> Encoded:
    """Workers do not ask it, and need not know its password."""
    return replace(schema, registry=None)


def _say(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST]
