"""Parses values of records into columns. A record whose value cannot be parsed stays whole, with the reason in `error`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, LongType, StringType, StructField, StructType

from jlog.pipeline.fitting import OUT_OF_RANGE, has_only_doubles, is_changed, may_change, with_texts
from jlog.pipeline.inference import FIELDS_MAX, folded, infer_fields
from jlog.pipeline.sampling import as_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NONE, JSON, REGEX, LOGFMT = "none", "json", "regex", "logfmt"
KINDS = (NONE, JSON, REGEX, LOGFMT)
RECORD = ("sequence", "timestamp", "key", "headers", "journal")
ERROR, OTHER = "error", "other"
TEXT, FOUND, KEYS, PLAIN, MAP, TEXTS = "_text", "_found", "_keys", "_plain", "_map", "_texts"
TAKEN = {*RECORD, "value", "date", "hour", ERROR, OTHER}
WHOLE = "_whole"  # the column where Spark puts a text that does not fit the schema
VALUE = "_"  # the one field of an object around a value
WRONG_TYPE = "a field does not fit into its column"
# Matches JSON without half a surrogate pair. No text in UTF-8 has one, and Spark puts a question mark in its place.
NO_HALF_PAIR = r"\A(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+\z"

# Of a JSON text: a string, or a number that Spark's texts of it take for a double.
STRING = r'"(?:[^"\\]|\\.)*+"'
FRACTION = r"-?\d++(?:\.\d++(?:[eE][-+]?\d++)?|[eE][-+]?\d++)"
LONG_NUMBER = r"^-?\d{39,}$"  # no column of numbers has so many digits

DECIMAL = re.compile(r"DECIMAL\(\d+,(\d+)\)")
GROUP = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
# A key, and the value after =. The pattern never backtracks, however long the line is.
PAIR = r"""([^\s="]++)=("(?:[^"\\]|\\.)*+"|[^\s"]*+)"""
PAIR_OR_WORD = rf"""{PAIR}|([^\s="]++)"""  # takes a word as a whole, and does not look for pairs in its rest
WORDS = ""  # the key of the words that are in no pair
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
            raise ValueError("--parse regex needs --pattern, and --pattern is for --parse regex alone")
        if self.pattern is not None and not self._groups():
            raise ValueError(
                f"the pattern {self.pattern!r} has no named group, such as (?<level>[A-Z]+), which becomes a column"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """Returns what decides which values are bad, and which columns there are."""
        return {"pattern": self.pattern, "keep_value": self.keep_value}

    @property
    def makes_fields(self) -> bool:
        """Says whether values are parsed at all."""
        return self.kind != NONE

    @property
    def needs_sample(self) -> bool:
        """Says whether the columns have to be given, or found out from records."""
        return self.kind in (JSON, LOGFMT)

    def fields(self) -> StructType:
        """Returns the fields that are known without records."""
        return StructType([StructField(name, StringType()) for name in self._groups()])

    def _groups(self) -> Mapping[str, int]:
        """Returns the named groups with their numbers, as Python counts them, and Java too."""
        if self.pattern is None:
            return {}
        try:
            return re.compile(GROUP.sub(r"(?P<\1>", self.pattern)).groupindex
        except re.error as error:
            raise ValueError(f"{self.pattern!r} is not a regular expression: {error}") from None

    # --- Columns ------------------------------------------------------------------------------------------------------

    def infer(self, spark: SparkSession, values: Iterable[bytes]) -> StructType:
        """Finds the fields of these values; none where they have none."""
        texts = as_texts(values)
        if self.kind == JSON:
            return infer_fields(texts)
        sample = spark.createDataFrame([(text,) for text in texts], f"{TEXT} string")
        rows = sample.select(f.explode(f.map_keys(_pairs()))).where(f.col("col") != WORDS).groupBy("col").count().collect()
        names = sorted(rows, key=lambda row: (-row[1], row[0]))[:FIELDS_MAX]
        return StructType([StructField(row[0], StringType()) for row in sorted(names)])

    # --- New fields ---------------------------------------------------------------------------------------------------

    def first_unknown(self, frame: DataFrame, fields: StructType) -> tuple[int, str, str] | None:
        """Returns the first record that can be parsed and has a field without a column: its sequence, journal and field."""
        others = self._others(frame, fields).select("sequence", "journal", f.explode(f.map_keys(OTHER)).alias("name"))
        if self.kind == LOGFMT:
            others = others.where(f.col("name") != WORDS)
        (row,) = others.agg(f.min(f.struct("sequence", "journal", "name")).alias("first")).collect()
        return None if row[0] is None else (row[0]["sequence"], row[0]["journal"], row[0]["name"])

    def new_fields(self, frame: DataFrame, fields: StructType) -> list[StructField]:
        """Returns the fields without a column that parsed records of the frame have, the most frequent ones first, each with a
        type that holds all its values there. Objects and arrays are text, whose keys may change. Left out are fields that have
        no value in any record, and those that no column can have."""
        others = self._others(frame, fields)
        if self.kind == LOGFMT:
            found = others.select(f.explode(OTHER).alias("name", "text")).select("name", f.lit("STRING").alias("type"))
            found = found.groupBy("name").agg(f.first("type").alias("type"), f.count("type").alias("records"))
        else:
            values = f.from_json(f.col("value").cast("string"), "map<string,variant>")
            found = others.select(OTHER, f.explode(values).alias("name", "json"))
            found = found.where(~f.col("name").isin(fields.names)) if fields.fields else found
            is_long = f.bool_or(f.coalesce(f.col(OTHER).getItem(f.col("name")).rlike(LONG_NUMBER), f.lit(False)))
            type_of_all = f.when(is_long, "STRING").otherwise(f.schema_of_variant_agg("json"))
            found = found.groupBy("name").agg(type_of_all.alias("type"), f.count("json").alias("records"))
        rows = sorted(found.collect(), key=lambda row: (-row["records"], row["name"]))
        used = {folded(name) for name in fields.names}
        new: list[StructField] = []
        for row in rows:
            key, kind = folded(row["name"]), _type_of_variants(row["type"])
            if kind is not None and key and key not in used:
                used.add(key)
                new.append(StructField(row["name"], kind))
        return new

    def _others(self, frame: DataFrame, fields: StructType) -> DataFrame:
        return self.parse(frame, fields).where(f.col(OTHER).isNotNull() & f.col(ERROR).isNull())

    # --- Parsing ------------------------------------------------------------------------------------------------------

    def parse(self, frame: DataFrame, fields: StructType, *, is_part: bool = False) -> DataFrame:
        """Returns the records with a column for each field, `other` for further fields, and `error` where a value cannot be
        parsed. is_part: says that most values have further fields."""
        if not self.makes_fields:
            return frame.withColumn(ERROR, f.lit(None).cast("string"))
        text = f.when(f.is_valid_utf8(f.col("value").cast("string")), f.col("value").cast("string"))
        frame = frame.withColumn(TEXT, text)
        if self.kind == JSON:
            wrong, columns, frame = self._json(frame, fields, is_part=is_part)
        else:
            wrong, columns, frame = {REGEX: self._regex, LOGFMT: self._logfmt}[self.kind](frame, fields)
        error = (
            f.when(f.col("value").isNull(), "the value is null")
            .when(f.col(TEXT).isNull(), "the value is not UTF-8")
            .otherwise(wrong)
        )
        return frame.select(*RECORD, "value", error.alias(ERROR), *columns)

    def _json(self, frame: DataFrame, fields: StructType, *, is_part: bool) -> tuple[Column, list[Column], DataFrame]:
        """Parses a value once into its fields, and looks at its keys. Only a value with other keys is parsed as a map too. If
        most values have some, making a map of each one takes less time than looking at the keys first.

        Spark takes the first value of a text, and is silent about what follows it. So the value is parsed as the one field of
        an object, and counted as an element of an array: nothing but one value fits in both."""
        element = f.concat(f.lit("["), TEXT, f.lit("]"))
        frame = frame.withColumn(KEYS, f.json_object_keys(TEXT))
        has_one = f.col(KEYS).isNotNull() & (f.coalesce(f.json_array_length(element), f.lit(0)) == 1)
        has_known = ~f.exists(KEYS, lambda key: ~key.isin(fields.names)) if fields.fields else f.size(KEYS) == 0
        frame = frame.withColumn(PLAIN, f.coalesce(has_one & has_known, f.lit(False)))
        # A map is also needed for NaN, which only from_json knows, and for keys in nested objects.
        always = is_part or any(_has_struct(one.dataType) for one in fields.fields)
        needs_map = f.lit(True) if always else ~f.col(PLAIN)
        frame = frame.withColumn(MAP, f.when(needs_map, f.from_json(element, "array<map<string,string>>")))
        frame = frame.withColumn(MAP, f.when(f.size(MAP) == 1, f.col(MAP).getItem(0)))
        wrong = f.when(_has_half_pair(), "the value has half a surrogate pair")
        wrong = wrong.when(_has_infinite_number(), "the value has a number that no double can hold")
        wrong = wrong.when(f.when(needs_map, f.col(MAP).isNull()).otherwise(~f.col(PLAIN)), "the value is not a JSON object")
        columns = []
        if fields.fields:
            whole = StructType([StructField(VALUE, fields), StructField(WHOLE, StringType())])
            options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": WHOLE}
            inside = f.concat(f.lit(f'{{"{VALUE}":'), TEXT, f.lit("}"))
            frame = frame.withColumn(FOUND, f.from_json(inside, whole, options))
            found = f.col(FOUND).getField(VALUE)
            columns = [found.getField(one.name).alias(name) for one, name in _named(fields)]
            wrong = wrong.when(found.isNull(), "the value is not a JSON object")
            wrong = wrong.when(f.col(FOUND).getField(WHOLE).isNotNull(), WRONG_TYPE)
            suspects = StructType([one for one in fields.fields if may_change(one.dataType)])
            if suspects.fields:
                frame = frame.withColumn(TEXTS, _texts(inside, suspects).getField(VALUE))
                wrong = wrong.when(_is_any_changed(found, suspects), WRONG_TYPE)
        return wrong, [*columns, _other(fields)], frame

    def _regex(self, frame: DataFrame, fields: StructType) -> tuple[Column, list[Column], DataFrame]:
        assert self.pattern is not None
        plain = GROUP.sub("(", self.pattern)  # names in Java have no underscore; the numbers are the same
        raw = {}
        for name, number in self._groups().items():
            found = f.regexp_extract(TEXT, plain, number)
            took_part = f.col(TEXT).rlike(self._with_part(plain, number))
            raw[name] = f.when((found != "") | took_part, found)
        wrong = f.when(~f.col(TEXT).rlike(plain), "the pattern does not match")
        return _cast(wrong, raw, fields, frame)

    def _with_part(self, plain: str, number: int) -> str:
        """Returns a pattern that finds the same, if this group took part in it and matched an empty text. Spark's functions
        return an empty text for both. A reference to a group that took no part never matches; nothing is tried again for it,
        since the pattern itself is one atomic group."""
        end = "\n)" if re.compile(GROUP.sub("(", plain)).flags & re.VERBOSE else ")"  # the last line may be a comment
        return rf"\A(?>(?s:.*?)(?:{plain}{end})\{number}"

    def _logfmt(self, frame: DataFrame, fields: StructType) -> tuple[Column, list[Column], DataFrame]:
        frame = frame.withColumn(MAP, _pairs())
        is_line = f.coalesce(f.exists(f.map_keys(MAP), lambda key: key != WORDS), f.lit(False))
        wrong = f.when(~is_line, "the value is not logfmt")
        wrong = wrong.when(f.exists(f.map_values(MAP), lambda value: value.isNull()), "a quoted value has an unknown escape")
        raw = {one.name: f.col(MAP).getItem(one.name) for one in fields.fields}
        wrong, columns, frame = _cast(wrong, raw, fields, frame)
        return wrong, [*columns, _other(fields)], frame


def _pairs() -> Column:
    """Parses logfmt into a map of keys and values, without the quotes; null where a text is none. A value with an unknown
    escape is null."""
    keys, values, words = (f.regexp_extract_all(TEXT, f.lit(PAIR_OR_WORD), f.lit(group)) for group in (1, 2, 3))
    pairs = f.map_filter(f.map_from_arrays(keys, f.transform(values, _unquoted)), lambda key, _: key != WORDS)
    text = f.array_join(f.filter(words, lambda word: word != ""), " ")
    has_words = f.exists(keys, lambda key: key == "")
    pairs = f.when(has_words, f.map_concat(pairs, f.create_map(f.lit(WORDS), text))).otherwise(pairs)
    return f.when(f.col(TEXT).rlike(LINE), pairs)


def _unquoted(value: Column) -> Column:
    """Undoes the escapes that JSON has, and \\xNN for ASCII, which Go's strconv.Quote writes."""
    inner = f.substring(value, f.lit(2), f.length(value) - 2)
    escaped = f.regexp_replace(inner, r"\G((?:[^\\]|\\[^x])*+)\\x([0-7][0-9a-fA-F])", r"$1\\u00$2")
    whole = f.concat(f.lit(f'{{"{VALUE}":"'), escaped, f.lit('"}'))
    plain = f.from_json(whole, f"{VALUE} string", {"allowUnquotedControlChars": "true"}).getField(VALUE)
    plain = f.when(~f.contains(inner, f.lit("\\")), inner).when(escaped.rlike(NO_HALF_PAIR), plain)
    return f.when(value.startswith('"'), plain).otherwise(value)


def _other(fields: StructType) -> Column:
    """Returns the fields that have no column, as text; null where there are none. A field is among them, as a whole, if an
    object in it has keys that its type has not."""
    rest = f.col(MAP)
    if fields.fields:
        rest = f.map_filter(MAP, lambda name, text: ~name.isin(fields.names) | _has_more(name, text, fields))
    return f.when(f.size(rest) > 0, rest).alias(OTHER)


def _has_more(name: Column, text: Column, fields: StructType) -> Column:
    """Says whether the field of this name, whose JSON is given, has keys that its type has not."""
    found = f.lit(False)
    for one in fields.fields:
        if _has_struct(one.dataType):
            found = f.when(name == one.name, _exceeds(text, one.dataType)).otherwise(found)
    return found


def _exceeds(text: Column, kind: DataType) -> Column:
    """Says whether JSON has keys that are not in this type."""
    if isinstance(kind, ArrayType):
        elements = f.from_json(text, "array<string>")
        return f.coalesce(f.exists(elements, lambda element: _exceeds(element, kind.elementType)), f.lit(False))
    assert isinstance(kind, StructType)
    exceeds = f.exists(f.json_object_keys(text), lambda key: ~key.isin(kind.names))
    if any(_has_struct(one.dataType) for one in kind.fields):
        inner = f.from_json(text, "map<string,string>")
        exceeds = exceeds | f.exists(f.map_entries(inner), lambda entry: _has_more(entry["key"], entry["value"], kind))
    return f.coalesce(exceeds, f.lit(False))


def _has_struct(kind: DataType) -> bool:
    return _has_struct(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, StructType)


def _type_of_variants(schema: str) -> DataType | None:
    """Returns the type of a column for values with this schema; None where all are null."""
    if schema == "VOID":
        return None
    decimal = DECIMAL.fullmatch(schema)
    if schema in ("DOUBLE", "FLOAT") or (decimal is not None and int(decimal[1]) > 0):
        return DoubleType()
    return {"BIGINT": LongType(), "BOOLEAN": BooleanType()}.get(schema, StringType())


def _has_half_pair() -> Column:
    is_suspect = f.contains(TEXT, f.lit("\\ud")) | f.contains(TEXT, f.lit("\\uD"))
    return is_suspect & ~f.col(TEXT).rlike(NO_HALF_PAIR)


def _has_infinite_number() -> Column:
    """Says whether JSON has a number with a fraction or an exponent that is out of a double's range: Spark's text of it would
    be Infinity."""
    numbers = f.regexp_extract_all(f.regexp_replace(TEXT, STRING, "_"), f.lit(f"({FRACTION})"), f.lit(1))
    is_any = f.exists(numbers, lambda number: f.abs(number.try_cast("double")) == f.lit(float("inf")))
    return f.col(TEXT).rlike(OUT_OF_RANGE) & is_any


def _texts(inside: Column, fields: StructType) -> Column:
    """Parses fields whose values Spark may change, as text."""
    texts = f.from_json(inside, StructType([StructField(VALUE, with_texts(fields))]))
    return f.when(f.col(TEXT).rlike(OUT_OF_RANGE), texts) if has_only_doubles(fields) else texts


def _is_any_changed(found: Column, fields: StructType) -> Column:
    """Says whether one of these fields is another value than its text. All fields of a type are compared as one array, which
    keeps the plan small."""
    names: dict[DataType, list[str]] = {}
    for one in fields.fields:
        names.setdefault(one.dataType, []).append(one.name)
    is_any = f.lit(False)
    for kind, those in names.items():
        values, texts = (f.array(*(row.getField(name) for name in those)) for row in (found, f.col(TEXTS)))
        is_any = is_any | is_changed(values, texts, ArrayType(kind))
    return is_any


def _cast(
    wrong: Column, raw: dict[str, Column], fields: StructType, frame: DataFrame
) -> tuple[Column, list[Column], DataFrame]:
    """Casts texts to the types of the fields. A text that does not fit is an error."""
    columns = []
    for one, name in _named(fields):
        if one.name not in raw:
            raise ValueError(f"the schema has the field {one.name}, but the pattern has no group of that name")
        cast = raw[one.name].try_cast(one.dataType)
        if not isinstance(one.dataType, StringType):
            fits = cast.isNotNull() & ~is_changed(cast, raw[one.name].try_cast(with_texts(one.dataType)), one.dataType)
            wrong = wrong.when(raw[one.name].isNotNull() & ~fits, f"{one.name} does not fit into {one.dataType.simpleString()}")
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
