"""The machine's time zone in DuckDB, which itself takes UTC where TZ is a rule or a file's path."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

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


def set_zone(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes a time without an offset one of this machine's zone. Raises ValueError where DuckDB has no such zone."""
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
