"""The values that a column to partition by can have: those that its directories' names give back to every reader."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from jlog.pipeline.plan import ICEBERG, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import Column

NAME_BYTES = 255  # of a directory, on nearly all file systems
NULL = "__HIVE_DEFAULT_PARTITION__"  # in place of a null
ESCAPED = r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]"""  # Spark writes %XX for each
WHOLE_NUMBER = r"^(0|-?[1-9]\d{0,37})$"  # as readers write it, and as long as their numbers can be
NUMBER_OR_TIME = r"^\s*[-+]?(\.?\p{Nd}|NaN|Infinity)"
DIGITS = r"^[-+]?\p{Nd}+$"  # of any script
TIME = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
TOO_LONG = "is too long for the name of a directory"
DOUBLE_DIGITS = 15  # of a decimal number, each of which a double keeps
ANOTHER = "partition by another column, or use --format delta or --format iceberg"


def check_type(name: str, kind: DataType, table: str) -> None:
    """Raises ValueError for a column whose values no directory's name can give back. table: the format of the table."""
    if isinstance(kind, ArrayType | MapType | StructType):
        raise ValueError(f"the column {name} is {kind.simpleString()}, which cannot name a directory; partition by another")
    if _room(name, table) < len(NULL):
        raise ValueError(f"the name of the column {name} is too long for a directory; partition by another")
    if table != PARQUET:  # the others keep the values and their types in files of their own
        return
    if isinstance(kind, TimestampType | TimestampNTZType):
        raise ValueError(
            f"the column {name} is {kind.simpleString()}, and readers take the time in a directory's name for one of their own "
            f"zone; {ANOTHER}"
        )
    if isinstance(kind, DecimalType) and kind.scale > 0 and kind.precision > DOUBLE_DIGITS:
        raise ValueError(
            f"the column {name} is {kind.simpleString()}, and readers take a directory's name for a double; {ANOTHER}"
        )


def restricted(fields: StructType, columns: Iterable[str], table: str) -> list[str]:
    """Returns those of the columns that may have values which a directory's name does not give back."""
    kinds = {one.name: one.dataType for one in fields}
    text = (StringType,) if table == ICEBERG else (StringType, BinaryType)
    return [name for name in columns if isinstance(kinds.get(name), text)]


def misfit(columns: Iterable[str], table: str) -> Column:
    """Returns why a value of one of these columns cannot be given back; null where all can."""
    return f.coalesce(*(_misfit(name, table) for name in columns))


def _misfit(name: str, table: str) -> Column:
    text = f.col("`{}`".format(name.replace("`", "``"))).cast("string")
    if table == ICEBERG:
        reasons = {TOO_LONG: f.length(f.url_encode(text)) > _room(name, table)}
    else:
        reasons = {
            "is empty, which readers of a directory take for null": text == "",
            "is the name of a directory that means null": text == NULL,
            "is not UTF-8, and cannot name a directory": ~f.is_valid_utf8(text),
            "has the character NUL, which no name of a directory can have": f.contains(text, f.lit("\x00")),
            TOO_LONG: f.octet_length(f.regexp_replace(text, ESCAPED, "%XX")) > _room(name, table),
        }
    if table == PARQUET:
        reasons[f"is text that readers of directories take for a number or a time; {ANOTHER}"] = _looks_typed(text)
    return f.coalesce(*(f.when(is_bad, f"{name} {reason}") for reason, is_bad in reasons.items()))


def _room(name: str, table: str) -> int:
    """Returns the number of bytes that are left for a value in the name of a directory."""
    escaped = quote_plus(name) if table == ICEBERG else re.sub(ESCAPED, "%XX", name)
    return NAME_BYTES - len(f"{escaped}=".encode())


def _looks_typed(text: Column) -> Column:
    """Says whether readers make another text of this one, 7 of 007 and 1.0 of 1d, or of a whole number in another directory:
    beside 1.5 they give 7.0 for 7. Whole numbers as they write them are safe, and so are dates."""
    is_number = text.try_cast("double").isNotNull() | text.rlike(DIGITS) | text.rlike(TIME)
    return text.rlike(NUMBER_OR_TIME) & ~text.rlike(WHOLE_NUMBER) & is_number
