"""The columns, and the ranges of sequence and timestamp, that DuckDB needs of each scan for a statement.

DuckDB itself says that: it plans the statement over empty tables that have the columns of the scans. Whatever its optimizer has
moved into the reading of a table holds for every row that the statement uses from there, and it has computed all that depends
on no row, such as now() - INTERVAL 1 hour. A condition that is not understood here narrows nothing, and DuckDB checks all
conditions again on the records that are read.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jlog.query.bounds import EVERYTHING, FLIPPED, Bounds, compared, containing, one_of

try:
    import duckdb
except ImportError as error:
    raise ImportError("SQL needs duckdb 2.0.1 or newer: pip install 'pyjlog[sql]'") from error

if TYPE_CHECKING:
    from jlog.query.scan import Scan

_OPERATORS = {
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_EQUAL": "=",
}
# Both of these look at a table's content: an empty one makes them drop the reading, or read it twice.
_NOT_OF_EMPTY_TABLES = "statistics_propagation,late_materialization"
# A condition of DuckDB's own, which is empty in a plan.
_DYNAMIC = re.compile(r"(?: AND )?optional: Dynamic Filter \(\w+\)")
_DESCENDING = re.compile(r" DESC(?: NULLS (?:FIRST|LAST))?\Z")
_NO_NODE: Mapping[str, Any] = {}
# A plan has times in UTC, and in this form.
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\+00\Z")


# Twice a month until the end of 32-bit times. From 2007 on, most zones have the rules that they have today.
_MOMENTS = range(0, 1 << 31, 15 * 86_400)
_RULES_BEGIN = 1_167_609_600
_IS_UTC = """
    SELECT bool_and(epoch(timezone(current_setting('TimeZone'), to_timestamp(moment)))::BIGINT = moment)
    FROM (SELECT unnest(?::BIGINT[]) AS moment)
"""
# Of the zones with the same offsets since then, the one that shares the most earlier offsets.
_SAME_ZONES = """
    WITH wanted AS (SELECT unnest(?::BIGINT[]) AS moment, unnest(?::BIGINT[]) AS ahead),
    compared AS (
        SELECT name, moment, epoch(timezone(name, to_timestamp(moment)))::BIGINT - moment = ahead AS is_same
        FROM pg_timezone_names(), wanted
    )
    SELECT name FROM compared GROUP BY name HAVING bool_and(is_same OR moment < ?) ORDER BY count_if(is_same) DESC, name LIMIT 1
"""


def connected(spill_directory: str) -> duckdb.DuckDBPyConnection:
    """Returns a connection to an empty database in memory, in the machine's time zone. What does not fit into memory goes below
    the directory. Raises ValueError where DuckDB does not have the zone."""
    connection = duckdb.connect(config={"temp_directory": spill_directory})
    _set_zone(connection)
    return connection


def execute(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    scans: Mapping[str, Scan],
    *,
    narrowed: bool = True,
    locked: bool = False,
) -> duckdb.DuckDBPyConnection | None:
    """Runs a statement, which knows each scan as a table of its name, with the columns alone that it needs where `narrowed`.
    Planning and running are one transaction, so that now() is the same in both. Returns None for an empty statement.

    locked: the statement cannot change a setting of the connection.
    Raises ValueError for a statement that is not UTF-8."""
    try:
        statement.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the statement is not UTF-8 at its character {error.start + 1}: {statement[error.start]!r}") from None
    connection.begin()
    try:
        needed = plan(connection, statement, scans)
    except duckdb.Error:  # it cannot be explained, or is wrong: to run it shows which
        connection.rollback()
        connection.begin()
        needed = {}
    for name, scan in scans.items():
        need = needed.get(name, WHOLE)
        connection.register(name, need.of(scan) if narrowed else replace(need, columns=None).of(scan))
    try:
        if locked:
            connection.execute("SET lock_configuration = true")
        return connection.execute(statement)
    except duckdb.BinderException:
        if not (narrowed and needed):
            raise
    connection.rollback()
    return execute(connection, statement, scans, narrowed=False)  # it names a column that it does not need


def reason_of(error: duckdb.Error) -> str:
    """Returns the error's text, without the traceback that pyarrow adds where reading a scan has failed."""
    return str(error).partition(". Detail: Python exception: ")[0]


@dataclass(frozen=True)
class Need:
    """The part of one scan that a statement needs. columns: None for all."""

    columns: frozenset[str] | None
    bounds: Bounds
    newest: int | None = None
    by_extremes: bool = False

    def either(self, other: Need) -> Need:
        columns = None if self.columns is None or other.columns is None else self.columns | other.columns
        return Need(columns, self.bounds.either(other.bounds))

    def of(self, scan: Scan) -> Scan:
        columns = None if self.columns is None else [name for name in scan.names() if name in self.columns]
        narrowed = scan.narrowed(columns or ["sequence"] if columns is not None else None, self.bounds)
        if self.newest is not None:
            return narrowed.tail(self.newest)
        return replace(narrowed, by_extremes=self.by_extremes)


WHOLE = Need(None, EVERYTHING)


def plan(connection: duckdb.DuckDBPyConnection, statement: str, scans: Mapping[str, Scan]) -> dict[str, Need]:
    """Returns what the statement needs of the scans; nothing for a scan of which that is not known."""
    if len(connection.extract_statements(statement)) != 1:
        return {}
    for name, scan in scans.items():
        connection.unregister(name)  # a former statement's scan has the table's name
        connection.register("jlog_without_records", scan.without_records())
        connection.execute(f"CREATE TEMP TABLE {_quoted(name)} AS FROM jlog_without_records")
    connection.unregister("jlog_without_records")
    connection.execute(f"SET disabled_optimizers = '{_NOT_OF_EMPTY_TABLES}'")
    try:
        rows = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}").fetchall()
    finally:
        connection.execute("RESET disabled_optimizers")
    for name in scans:
        connection.execute(f"DROP TABLE {_quoted(name)}")
    found = _needs(connection, json.loads(rows[0][1]), scans)
    extremes = _table_of_extremes(_node(connection, statement))
    return {name: replace(need, by_extremes=name == extremes) for name, need in found.items()}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _needs(
    connection: duckdb.DuckDBPyConnection, nodes: list[Any], scans: Mapping[str, Scan], above: Mapping[str, Any] = _NO_NODE
) -> dict[str, Need]:
    found: dict[str, Need] = {}
    for node in nodes:
        info = node.get("extra_info", {})
        name = str(info.get("Table", "")).rpartition(".")[2].strip('"')
        if name in scans:
            need = _need(connection, info, scans[name])
            need = replace(need, newest=_newest(info, above, scans[name]))
            found[name] = found[name].either(need) if name in found else need
        passed_on = above if node.get("name") == "PROJECTION" else node
        for other, need in _needs(connection, node.get("children", []), scans, passed_on).items():
            found[other] = found[other].either(need) if other in found else need
    return found


def _newest(info: Mapping[str, Any], above: Mapping[str, Any], scan: Scan) -> int | None:
    """Returns how many of the newest records are enough, where the node above takes the rows with the highest sequences: DuckDB
    has given the reading a filter then, on the column by which that node orders first. None where all records are needed."""
    is_by_sequence = _listed(info.get("Filters")) == ["optional: Dynamic Filter (sequence)"]
    if above.get("name") != "TOP_N" or not is_by_sequence or scan.newest is not None or scan.parser is not None:
        return None
    taken = above["extra_info"]
    if not _DESCENDING.search(_listed(taken.get("Order By"))[0]):
        return None
    return int(taken["Top"]) + int(taken.get("Offset", 0))


def _need(connection: duckdb.DuckDBPyConnection, info: dict[str, Any], scan: Scan) -> Need:
    names = scan.names()
    if len({name.lower() for name in names}) < len(names):
        return WHOLE  # DuckDB renames columns that differ in case alone. The new names depend on all columns.
    paths, conditions = [path for path in _listed(info.get("Projections")) if path], _listed(info.get("Filters"))
    # A condition that is checked again after the reading needs columns. DuckDB lists none if it is on a field of a struct.
    listed = bool(paths) or not any(text.startswith("optional: ") for text in conditions)
    bounds, readable = EVERYTHING, _reads_names(connection, scan)
    for text in conditions:
        text = _DYNAMIC.sub("", text)
        if readable and not text:
            continue
        tree = _tree(connection, text.removeprefix("optional: ")) if readable else None
        if tree is None:
            return WHOLE
        paths += _paths_in(tree)
        bounds = bounds.both(_bounds(tree))
    # `a.b` is the field `b` of a column of structs, or a column.
    columns = [{name for name in names if f"{path}.".startswith(f"{name}.")} for path in paths]
    return Need(frozenset().union(*columns) if listed and all(columns) else None, bounds)


def _listed(given: Any) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _table_of_extremes(node: Mapping[str, Any]) -> str | None:
    """Returns the name of the table of which the statement needs no more than how many records there are, and the least and the
    greatest in its columns; None for another statement."""
    table = node.get("from_table") or {}
    clauses = ("where_clause", "group_expressions", "group_sets", "having", "qualify", "sample", "modifiers")
    if node.get("type") != "SELECT_NODE" or table.get("type") != "BASE_TABLE" or node.get("cte_map") != {"map": []}:
        return None
    is_plain = not any(node.get(name) for name in clauses) and not table.get("sample")
    return str(table["table_name"]) if is_plain and _has_extremes_alone(node["select_list"]) else None


def _has_extremes_alone(tree: Any) -> bool:
    if isinstance(tree, list):
        return all(map(_has_extremes_alone, tree))
    if not isinstance(tree, dict):
        return True
    if tree.get("class", "CONSTANT") not in ("FUNCTION", "CONSTANT", "CAST", "OPERATOR", "COMPARISON"):
        return False
    if tree.get("function_name") in ("min", "max") and not tree["filter"]:
        classes = [argument["expression"]["class"] for argument in tree["arguments"]]
        if classes == ["COLUMN_REF"]:
            return True
    return all(map(_has_extremes_alone, tree.values()))


# --- Conditions --------------------------------------------------------------------------------------------------


def _reads_names(connection: duckdb.DuckDBPyConnection, scan: Scan) -> bool:
    """Says whether DuckDB takes the name of each column, and of each field within it, for a name. A condition is given as text
    without quotes, in which `null` and `a < 5 OR b` would make it read like another one."""
    names = [[name] for name in scan.names()]
    if scan.parser is not None:
        names += [["a", name] for field in scan.pyarrow_schema for name in _names_within(field.type)]
    node = _node(connection, "SELECT " + ", ".join(map(".".join, names)))
    return [part.get("column_names") for part in node.get("select_list", [])] == names


def _names_within(given: Any) -> Iterator[str]:
    """Yields the names of all fields within a type of pyarrow."""
    for field in map(given.field, range(given.num_fields)):
        yield field.name
        yield from _names_within(field.type)


def _tree(connection: duckdb.DuckDBPyConnection, condition: str) -> dict[str, Any] | None:
    """Returns DuckDB's own tree of a condition; None where the text is not a condition in SQL."""
    found = _node(connection, f"SELECT 1 WHERE {condition}").get("where_clause")
    return found if isinstance(found, dict) else None


def _node(connection: duckdb.DuckDBPyConnection, statement: str) -> dict[str, Any]:
    """Returns the tree of a statement; an empty one where the text is none."""
    answer = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement]).fetchall()
    found = json.loads(answer[0][0])
    return {} if found["error"] else found["statements"][0]["node"]


def _paths_in(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for part in tree:
            yield from _paths_in(part)
    elif isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield ".".join(tree["column_names"])
        for part in tree.values():
            yield from _paths_in(part)


def _bounds(tree: dict[str, Any]) -> Bounds:
    kind = tree.get("type")
    parts = tree.get("children", [])
    try:
        if kind == "CONJUNCTION_AND":
            return _combined(parts, Bounds.both)
        if kind == "CONJUNCTION_OR":
            return _combined(parts, Bounds.either)
        if kind == "COMPARE_IN":
            return one_of(_column(parts[0]), [_value(part) for part in parts[1:]])
        if kind == "COMPARE_BETWEEN":
            column = _column(tree["input"])
            return compared(column, ">=", _value(tree["lower"])).both(compared(column, "<=", _value(tree["upper"])))
        if kind == "FUNCTION":
            column, literal = (argument["expression"] for argument in tree["arguments"])
            is_text = tree["function_name"] in ("contains", "prefix", "suffix")
            return containing(_column(column), _literal(literal)) if is_text else EVERYTHING
        return _comparison(_OPERATORS[kind or ""], tree["left"], tree["right"])
    except (KeyError, IndexError, TypeError, ValueError):
        return EVERYTHING  # another condition, or another form of the tree than is known here


def _combined(parts: list[dict[str, Any]], combine: Callable[[Bounds, Bounds], Bounds]) -> Bounds:
    found = _bounds(parts[0])
    for part in parts[1:]:
        found = combine(found, _bounds(part))
    return found


def _comparison(operator: str, left: dict[str, Any], right: dict[str, Any]) -> Bounds:
    if right.get("class") == "COLUMN_REF":
        left, operator, right = right, FLIPPED[operator], left
    return compared(_column(left), operator, _value(right))


def _column(tree: dict[str, Any]) -> str:
    if tree["class"] != "COLUMN_REF" or len(tree["column_names"]) > 1:
        raise ValueError("a column is computed with first, or is a field of one")
    return str(tree["column_names"][0])


def _value(tree: dict[str, Any]) -> int | datetime:
    """Returns a whole number or a time. Raises ValueError for another value."""
    if tree["class"] == "CAST":
        if tree["type_expr"]["type_name"] != "TIMESTAMP WITH TIME ZONE":
            raise ValueError("not a time")
        return _time(_literal(tree["child"]))
    return int(_literal(tree))


def _literal(tree: dict[str, Any]) -> str:
    if tree["class"] != "CONSTANT":
        raise ValueError("not a literal")
    return str(tree["literal"]["text"])


def _time(text: str) -> datetime:
    found = _TIME.match(text)
    if found is None:
        raise ValueError("not in the form that plans have")
    *parts, fraction = found.groups()
    return datetime(*map(int, parts), microsecond=int((fraction or "").ljust(6, "0")), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]


# --- Time zone ---------------------------------------------------------------------------------------------------


def _set_zone(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes a time without an offset one of this machine's zone: DuckDB itself takes UTC where TZ is a rule or a file's path.
    Raises ValueError where DuckDB has no such zone."""
    if not any(map(_ahead, _MOMENTS)) or not connection.execute(_IS_UTC, [list(_MOMENTS)]).fetchall()[0][0]:
        return  # it is UTC, or DuckDB has found its name
    moments = [*_MOMENTS, *_changes(_MOMENTS)]
    found = connection.execute(_SAME_ZONES, [moments, list(map(_ahead, moments)), _RULES_BEGIN]).fetchall()
    if not found:
        raise ValueError(
            f"DuckDB knows no time zone that is this machine's, {' and '.join(dict.fromkeys(time.tzname))}; name one in TZ, "
            "such as TZ=Europe/Berlin or TZ=UTC"
        )
    connection.execute("SET TimeZone = ?", found[0])


def _ahead(moment: int) -> int:
    """Returns how many seconds the machine's clocks are ahead of UTC then."""
    return time.localtime(moment).tm_gmtoff


def _changes(moments: Sequence[int]) -> Iterator[int]:
    """Yields the last second before each change of the offset, and the first one after it."""
    for last, first in pairwise(moments):
        if _ahead(last) == _ahead(first):
            continue
        before = _ahead(last)
        while first - last > 1:
            middle = (last + first) // 2
            last, first = (middle, first) if _ahead(middle) == before else (last, middle)
        yield from (last, first)
