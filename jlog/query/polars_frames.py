"""A scan as a LazyFrame of Polars. `scan` is a jlog.query.scan.Scan everywhere here."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

from jlog.query.bounds import EVERYTHING, FLIPPED, TIMES_US, Bounds, compared, containing, one_of

try:
    import polars
    from polars.io.plugins import register_io_source
except ImportError as error:
    raise ImportError("to_polars() needs polars 1.36.1 or newer: pip install 'pyjlog[polars]'") from error

_OPERATORS = {"Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "Eq": "="}
_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_MEANINGFUL = re.compile(r"[][\\.+*?(){}|^$]")  # the characters to which Rust's regex gives a meaning outside of its classes
_VIEWS = {"z": "vz", "u": "vu"}  # as Polars holds them itself, so that nothing is copied


def lazy_frame(scan: Any) -> polars.LazyFrame:
    def frames(
        with_columns: list[str] | None, predicate: polars.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        # With both, Polars means the predicate on the first n_rows: then nothing before these may be left out.
        bounds = EVERYTHING if predicate is None or n_rows is not None else bounds_of(predicate)
        narrowed = scan.narrowed(with_columns, bounds)
        yield _in_order(_empty(narrowed), with_columns)
        left = n_rows
        for batch in _batches(narrowed, n_rows):
            frame = polars.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield _in_order(frame, with_columns)
            if left == 0:
                return

    return register_io_source(frames, schema=lambda: _empty(scan).schema)


def _batches(scan: Any, limit: int | None) -> Iterator[Any]:
    if scan.parser is not None:
        yield from scan.pyarrow_batches(limit)
    else:
        fields = [field._replace(format=_VIEWS.get(field.format, field.format)) for field in scan.fields]
        yield from scan.batches(fields, limit)


def _empty(scan: Any) -> polars.DataFrame:
    return polars.DataFrame(scan.without_records())


def _in_order(frame: polars.DataFrame, names: list[str] | None) -> polars.DataFrame:
    return frame if names is None or frame.columns == names else frame.select(names)


# --- Predicates --------------------------------------------------------------------------------------------------


def bounds_of(predicate: polars.Expr) -> Bounds:
    """Returns the ranges that the records of the predicate lie in. Polars filters the records itself in any case."""
    try:
        return _bounds(json.loads(predicate.meta.serialize(format="json")))
    except (polars.exceptions.PolarsError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return EVERYTHING  # the form in which Polars writes expressions is not fixed


def _bounds(tree: dict[str, Any]) -> Bounds:
    if "BinaryExpr" in tree:
        return _of_operator(**tree["BinaryExpr"])
    if "Function" in tree:
        return _of_function(tree["Function"]["input"], tree["Function"]["function"])
    return EVERYTHING


def _of_operator(left: dict[str, Any], op: str, right: dict[str, Any]) -> Bounds:
    if op in ("And", "LogicalAnd"):
        return _bounds(left).both(_bounds(right))
    if op in ("Or", "LogicalOr"):
        return _bounds(left).either(_bounds(right))
    operator = _OPERATORS.get(op)
    if operator is None:
        return EVERYTHING
    if "Column" in right:
        left, operator, right = right, FLIPPED[operator], left
    return compared(left["Column"], operator, _values(right)[0])


def _of_function(given: list[dict[str, Any]], function: dict[str, Any]) -> Bounds:
    column = given[0]["Column"]
    if "StringExpr" in function or "BinaryExpr" in function:
        return containing(column, _needle(_values(given[1])[0], *function.values()))
    function = function["Boolean"]
    if "IsIn" in function:
        return one_of(column, _values(given[1]))
    lower, upper = _CLOSED[function["IsBetween"]["closed"]]
    return compared(column, lower, _values(given[1])[0]).both(compared(column, upper, _values(given[2])[0]))


def _needle(pattern: str | bytes | None, test: str | dict[str, Any]) -> str | bytes:
    """Returns the pattern, if the test looks for just this text. Raises ValueError for another pattern or test."""
    if not isinstance(pattern, (str, bytes)):
        raise ValueError("null has no text")
    if test in ("Contains", "StartsWith", "EndsWith"):
        return pattern
    if not isinstance(test, dict) or not isinstance(pattern, str):
        raise ValueError("not a test of text")
    if not test["Contains"]["literal"] and _MEANINGFUL.search(pattern):
        raise ValueError("a regular expression")
    return pattern


def _values(tree: dict[str, Any]) -> list[Any]:
    """Returns the values of a literal. Raises ValueError where Python has no value that is exactly the same."""
    literal = polars.Expr.deserialize(io.StringIO(json.dumps({"Literal": tree["Literal"]})), format="json")
    found = polars.select(literal).to_series()
    if isinstance(found.dtype, (polars.List, polars.Array)):
        found = found.explode()
    if isinstance(found.dtype, polars.Datetime) and found.dtype.time_unit == "ns":
        raise ValueError("a literal may lie between two timestamps of a journal")
    if isinstance(found.dtype, polars.Datetime):
        unit_us = 1_000 if found.dtype.time_unit == "ms" else 1
        if any(time is not None and time * unit_us not in TIMES_US for time in found.to_physical().to_list()):
            raise ValueError("a time that is beyond those of Python")
    return found.to_list()
