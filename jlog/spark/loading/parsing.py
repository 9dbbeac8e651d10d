"""Parses values of records into columns. A record whose value cannot be parsed stays whole, with the reason in `error`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from jlog.spark.loading.inference import FIELDS_MAX, folded, infer_fields
from jlog.spark.loading.sampling import as_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NONE, JSON, REGEX, LOGFMT = "none", "json", "regex", "logfmt"
KINDS = (NONE, JSON, REGEX, LOGFMT)
RECORD = ("sequence", "timestamp", "key", "headers", "journal")
ERROR, OTHER, TEXT, FOUND, MAP = "error", "other", "_text", "_found", "_map"
TAKEN = {*RECORD, "value", "date", "hour", ERROR, OTHER}
WHOLE = "_whole"  # the column where Spark puts a text that does not fit the schema

GROUP = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
# A key, and the value behind =. The pattern never backtracks, however long the line is.
PAIR = r"""([^\s="]++)=("(?:[^"\\]|\\.)*+"|[^\s"]*+)"""
LINE = rf"""^\s*+(?:(?:{PAIR}|[^\s="]++)(?:\s++|$))*+$"""


@dataclass(frozen=True)
class Parser:
    """Parses values. kind: one of KINDS. pattern: a regex with named groups. keep_value: keeps the value as a column beside its
    fields."""

    kind: str
    pattern: str | None = None
    keep_value: bool = False

    def __post_init__(self) -> None:
        if (self.kind == REGEX) != (self.pattern is not None):
            raise ValueError("--parse regex needs --pattern, and nothing else does")
        if self.pattern is not None and not self._groups():
            raise ValueError(f"the pattern {self.pattern!r} has no named group, such as (?<level>[A-Z]+), to make a column of")

    @property
    def needs_sample(self) -> bool:
        """Says whether the columns have to be given, or found out from records."""
        return self.kind in (JSON, LOGFMT)

    def fields(self) -> StructType:
        """Returns the fields that are known without records."""
        return StructType([StructField(name, StringType()) for name, _ in self._groups()])

    def _groups(self) -> list[tuple[str, int]]:
        """Returns the named groups with their numbers, as Python counts them, and Java too."""
        if self.pattern is None:
            return []
        try:
            found = re.compile(GROUP.sub(r"(?P<\1>", self.pattern)).groupindex
        except re.error as error:
            raise ValueError(f"{self.pattern!r} is no regular expression: {error}") from None
        return list(found.items())

    # --- Columns ------------------------------------------------------------------------------------------------------

    def infer(self, spark: SparkSession, values: Iterable[bytes]) -> StructType:
        """Finds the fields of these values; none where they have none."""
        texts = as_texts(values)
        if self.kind == JSON:
            return infer_fields(texts)
        sample = spark.createDataFrame([(text,) for text in texts], f"{TEXT} string")
        rows = sample.select(f.explode(f.map_keys(_pairs()))).groupBy("col").count().collect()
        names = sorted(rows, key=lambda row: (-row[1], row[0]))[:FIELDS_MAX]
        return StructType([StructField(row[0], StringType()) for row in sorted(names)])

    # --- Parsing ------------------------------------------------------------------------------------------------------

    def parse(self, frame: DataFrame, fields: StructType) -> DataFrame:
        """Returns the records with a column for each field, `other` for further fields, and `error` where a value cannot be
        parsed."""
        if self.kind == NONE:
            return frame.withColumn(ERROR, f.lit(None).cast("string"))
        text = f.when(f.is_valid_utf8(f.col("value").cast("string")), f.col("value").cast("string"))
        frame = frame.withColumn(TEXT, text)
        wrong, columns, frame = {JSON: self._json, REGEX: self._regex, LOGFMT: self._logfmt}[self.kind](frame, fields)
        error = (
            f.when(f.col("value").isNull(), "the value is null")
            .when(f.col(TEXT).isNull(), "the value is not UTF-8")
            .otherwise(wrong)
        )
        return frame.select(*RECORD, "value", error.alias(ERROR), *columns)

    def _json(self, frame: DataFrame, fields: StructType) -> tuple[Column, list[Column], DataFrame]:
        columns = []
        wrong = f.when(~f.ltrim(TEXT).startswith("{") | f.col(MAP).isNull(), "the value is no JSON object")
        if fields.fields:
            whole = StructType([*fields.fields, StructField(WHOLE, StringType())])
            options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": WHOLE}
            frame = frame.withColumn(FOUND, f.from_json(f.col(TEXT), whole, options))
            columns = [f.col(FOUND).getField(one.name).alias(name) for one, name in _named(fields)]
            wrong = wrong.when(f.col(FOUND).getField(WHOLE).isNotNull(), "a field is not of the type that it should be")
        frame = frame.withColumn(MAP, f.from_json(f.col(TEXT), "map<string,string>"))
        return wrong, [*columns, _other(fields)], frame

    def _regex(self, frame: DataFrame, fields: StructType) -> tuple[Column, list[Column], DataFrame]:
        assert self.pattern is not None
        plain = GROUP.sub("(", self.pattern)  # names in Java have no underscore; the numbers are the same
        numbers = dict(self._groups())
        found = {name: f.regexp_extract(TEXT, plain, number) for name, number in numbers.items()}
        raw = {name: f.when(column != "", column) for name, column in found.items()}
        wrong = f.when(~f.col(TEXT).rlike(plain), "the pattern does not match")
        return _cast(wrong, raw, fields, frame)

    def _logfmt(self, frame: DataFrame, fields: StructType) -> tuple[Column, list[Column], DataFrame]:
        frame = frame.withColumn(MAP, _pairs())
        is_line = f.col(TEXT).rlike(LINE) & (f.size(MAP) > 0)
        raw = {one.name: f.col(MAP).getItem(one.name) for one in fields.fields}
        wrong, columns, frame = _cast(f.when(~is_line, "the value is no logfmt"), raw, fields, frame)
        return wrong, [*columns, _other(fields)], frame


def _pairs() -> Column:
    """Parses logfmt into a map of keys and values, without the quotes."""
    keys = f.regexp_extract_all(TEXT, f.lit(PAIR), f.lit(1))
    values = f.regexp_extract_all(TEXT, f.lit(PAIR), f.lit(2))
    return f.map_from_arrays(keys, f.transform(values, _unquoted))


def _unquoted(value: Column) -> Column:
    inner = f.substring(value, f.lit(2), f.length(value) - 2)
    plain = f.regexp_replace(f.replace(inner, f.lit("\\n"), f.lit("\n")), r"\\(.)", "$1")
    return f.when(value.startswith('"'), plain).otherwise(value)


def _other(fields: StructType) -> Column:
    """Returns the fields that have no column, as text; null where there are none."""
    known = [one.name for one in fields.fields]
    rest = f.map_filter(MAP, lambda name, _: ~name.isin(known)) if known else f.col(MAP)
    return f.when(f.size(rest) > 0, rest).alias(OTHER)


def _cast(
    wrong: Column, raw: dict[str, Column], fields: StructType, frame: DataFrame
) -> tuple[Column, list[Column], DataFrame]:
    """Casts texts to the types of the fields. A text that does not fit is an error."""
    columns = []
    for one, name in _named(fields):
        if one.name not in raw:
            raise ValueError(f"the schema has the field {one.name}, and the pattern no group of that name")
        cast = raw[one.name].try_cast(one.dataType)
        if not isinstance(one.dataType, StringType):
            wrong = wrong.when(raw[one.name].isNotNull() & cast.isNull(), f"{one.name} is no {one.dataType.simpleString()}")
        columns.append(cast.alias(name))
    return wrong, columns, frame


def _named(fields: StructType) -> Iterable[tuple[StructField, str]]:
    """Yields each field with its column's name: the record's own columns keep theirs, whatever the case."""
    used = set(TAKEN)
    for one in fields.fields:
        name = one.name
        while folded(name) in used:
            name = f"value_{name}"
        used.add(folded(name))
        yield one, name


def union(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
