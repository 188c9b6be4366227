"""
Unwraps values by their headers: fetches claim checks, decrypts, decompresses.

The tables of the lake keep values as they are in the topic, so that a key that is
deleted erases them there, too. They are unwrapped when they are read. Only records
with such headers go to Spark's Python workers.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from ...exceptions import ConfigurationError, ConsumingError
from ...settings.rules import TABLE_NAME
from ..lake.records import INVALID
from . import wrapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..pipeline_settings import PipelineSettings

ERASED: Final = "erased"
"""The problem of a value whose subject's key was deleted."""

_NAMES: Final = (wrapping.CLAIM_CHECK, wrapping.ENCRYPTION, wrapping.CONTENT_ENCODING)
"""A record with one of these headers is wrapped."""

_OPENED: Final = "value BINARY, problem STRING"
"""What a worker returns for each record."""

_SUBJECT_KEYS: Final = (
    "SELECT key_id::text AS _key_id, master AS _master, wrapped AS _wrapped_key"
    " FROM {table}"
)

_NO_FILE: Final = {errno.ENOTDIR, errno.ENAMETOOLONG}
"""Errors of names that no file of the storage has."""

_MAX_PROBLEM_LENGTH: Final = 200
"""Maximum number of characters of a problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """Unwraps one value after the other; sent to the workers."""

    keys: Mapping[str, bytes] = field(repr=False)
    """Keys, and the master keys of subjects' keys, by id."""
    claim_checks: str
    """Folder or URI of the storage; empty: none."""
    knows_subjects: bool
    """Whether the records come with the keys of their subjects."""

    def open(self, record: Mapping[str, Any]) -> bytes | None:
        """
        Return the value of a record; None if its key was deleted.

        Args:
            record: `topic`, `key`, `value`, `headers`, `_master`, `_wrapped_key`.

        Raises:
            ConsumingError: the value cannot be unwrapped; a retry will not help.
            OSError: the storage does not answer.
        """
        headers = {
            header["key"]: (header["value"] or b"").decode("utf-8", "replace")
            for header in record["headers"]
        }
        value: bytes = record["value"]
        if claim := wrapping.find_claim(headers.get):
            value = self._read(claim)
        if wrapping.ENCRYPTION in headers:
            wrapping.check_scheme(headers[wrapping.ENCRYPTION])
            key_id, key = self._key(headers, record)
            if key is None:
                return None
            value = wrapping.decrypted(
                value,
                key,
                key_id=key_id,
                topics=wrapping.origins(record["topic"]),
                message_key=record["key"],
                content_encoding=headers.get(wrapping.CONTENT_ENCODING),
            )
        if headers.get(wrapping.CONTENT_ENCODING) == wrapping.GZIP:
            value = wrapping.decompressed(value)
        return value

    def _key(
        self, headers: Mapping[str, str], record: Mapping[str, Any]
    ) -> tuple[str, bytes | None]:
        """Return the id and the key of an encrypted value; None: it was deleted."""
        if (key_id := headers.get(wrapping.KEY_ID)) is not None:
            return key_id, self._shared(key_id)
        key_id = headers.get(wrapping.SUBJECT_KEY_ID, "")
        try:
            UUID(key_id)
        except ValueError:
            # An erased key has an id.
            raise ConsumingError(
                f"The header {wrapping.SUBJECT_KEY_ID} is not a UUID."
            ) from None
        if not self.knows_subjects:
            raise ConsumingError("The setting subject_keys names no table.")
        if record["_wrapped_key"] is None:
            return key_id, None
        master_key = self._shared(record["_master"])
        return key_id, wrapping.unwrapped_key(
            record["_wrapped_key"], master_key, key_id
        )

    def _shared(self, key_id: str) -> bytes:
        if key_id not in self.keys:
            raise ConsumingError(f"The setting payload_keys has no key {key_id!r}.")
        return self.keys[key_id]

    def _read(self, claim: wrapping.Claim) -> bytes:
        if not self.claim_checks:
            raise ConsumingError("The setting claim_checks names no storage.")
        files, root = _storage(self.claim_checks)
        path = f"{root}/{claim.name}"
        try:
            with files.open_input_file(path) as file:
                return wrapping.verified(claim, file.read(claim.size + 1))
        except FileNotFoundError:
            raise wrapping.missing_file(claim) from None
        except OSError as error:
            # A name that can be of no file must not stop all other records.
            if error.errno in _NO_FILE or _is_folder(files, path):
                raise wrapping.missing_file(claim) from None
            raise


def unwrapped(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """
    Return the records with the values that were stashed.

    If the settings name a table of subjects' keys, each action reads it. The keys go
    to the workers with the code.

    Args:
        records: At least the columns `topic`, `key`, `value` and `headers`.

    Returns:
        The same columns, `wrapped` (the value as it is in the topic) and `problem`:
        `erased` if the key was deleted, another text if the value cannot be unwrapped;
        `value` is null then.

    Raises:
        ConfigurationError: the database rejected `subject_keys`.
        DatabaseUnavailable: the database cannot be reached.
    """
    columns = records.columns
    is_wrapped = F.col("value").isNotNull() & F.coalesce(
        F.exists("headers", lambda header: header["key"].isin(*_NAMES)),
        F.lit(False),  # noqa: FBT003 - the literal itself
    )
    plain = records.where(~is_wrapped).withColumns(
        {"wrapped": F.col("value"), "problem": F.lit(None).cast("string")}
    )
    opener = Opener(
        keys=wrapping.read_keys(settings.payload_keys),
        claim_checks=settings.claim_checks,
        knows_subjects=bool(settings.subject_keys),
    )
    keyed = _with_subject_keys(records.where(is_wrapped), settings)
    opened = (
        keyed.withColumn("_opened", _in_workers(opener))
        .withColumn("wrapped", F.col("value"))
        .withColumns({name: F.col(f"_opened.{name}") for name in ("value", "problem")})
    )
    names = (*columns, "wrapped", "problem")
    return plain.select(*names).unionByName(opened.select(*names))


def as_in_topic(found: DataFrame) -> DataFrame:
    """
    Return rows of `unwrapped()` with a `reason`, with their values as in the topic.

    The reason is the problem, where there is one. Erased values are left out.
    """
    # What a decoder says of a value may quote it, and would outlive its key.
    is_wrapped = ~F.col("wrapped").eqNullSafe(F.col("value"))
    reason = F.when(is_wrapped, F.lit(INVALID)).otherwise(F.col("reason"))
    return (
        found.where(~F.col("problem").eqNullSafe(ERASED))
        .withColumn("reason", F.coalesce("problem", reason))
        .withColumn("value", F.col("wrapped"))
    )


def _with_subject_keys(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Add `_master` and `_wrapped_key`, null where the subject has no key any more."""
    if not settings.subject_keys:
        nothing = {"_master": "string", "_wrapped_key": "binary"}
        return records.withColumns(
            {name: F.lit(None).cast(kind) for name, kind in nothing.items()}
        )
    found = F.filter("headers", lambda h: h["key"] == wrapping.SUBJECT_KEY_ID)
    text = F.try_element_at(found, F.lit(-1))["value"].cast("string")
    keys = _subject_keys(records.sparkSession, settings)
    # As PostgreSQL writes it.
    return records.withColumn("_key_id", F.lower(text)).join(keys, "_key_id", "left")


def _subject_keys(spark: SparkSession, settings: PipelineSettings) -> DataFrame:
    from ..audit import jdbc

    if not TABLE_NAME.match(settings.subject_keys):
        raise ConfigurationError(
            f"subject_keys: {settings.subject_keys!r} must be a plain SQL name."
        )
    urls = [*settings.outboxes().values()]
    if not urls:
        raise ConfigurationError("subject_keys: database_url is missing.")
    text = _SUBJECT_KEYS.format(table=settings.subject_keys)
    with jdbc.explained("subject_keys"):
        return jdbc.query(spark, urls[0], text)


def _in_workers(opener: Opener) -> Any:
    """Make a column of structs from the columns of a record."""
    kind = to_arrow_type(StructType.fromDDL(_OPENED), timezone="UTC")
    names = ("topic", "key", "value", "headers", "_master", "_wrapped_key")

    def open_all(
        topics: pa.Array,
        keys: pa.Array,
        values: pa.Array,
        headers: pa.Array,
        masters: pa.Array,
        wrapped_keys: pa.Array,
    ) -> pa.Array:
        columns = (topics, keys, values, headers, masters, wrapped_keys)
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array(
            [_opened(opener, dict(zip(names, row, strict=True))) for row in rows], kind
        )

    returns = StructType.fromDDL(_OPENED)
    made = F.arrow_udf(open_all, returns)  # type: ignore[attr-defined] # no stub
    # Otherwise Spark evaluates it for each field and again for a filter.
    return made.asNondeterministic()(*names)


def _opened(opener: Opener, record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value, problem = opener.open(record), None
    except ConsumingError as error:
        value, problem = None, str(error)[:_MAX_PROBLEM_LENGTH]
    if value is None and problem is None:
        problem = ERASED
    return {"value": value, "problem": problem}


@lru_cache(maxsize=8)
def _storage(uri: str) -> tuple[Any, str]:
    """Return Arrow's file system and the path of the storage in it."""
    from pyarrow.fs import FileSystem

    files, root = FileSystem.from_uri(uri)
    return files, root


def _is_folder(files: Any, path: str) -> bool:
    from pyarrow.fs import FileType

    return bool(files.get_file_info(path).type == FileType.Directory)
