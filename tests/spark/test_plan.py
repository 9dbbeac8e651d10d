"""How ranges of sequences become partitions."""

from __future__ import annotations

import pytest

from jlog.spark.reading.options import parse
from jlog.spark.reading.plan import Range, RangePiece, partitions_of
from jlog.spark.reading.spark_journal import SparkJournal

REMOTE = SparkJournal("orders", "/orders")  # any source will do
SEGMENTS = [100, 100, 100, 1_000, 50, 100]  # their sizes in MiB, which are also their records


def pieces(*, is_remote: bool) -> list[RangePiece]:
    found, at = [], 0
    for size in SEGMENTS:
        found.append(RangePiece(Range(REMOTE, at, at + size), size << 20, is_remote))
        at += size
    return found


def cut(*, is_remote: bool = True, **options: str) -> list[list[tuple[int, int]]]:
    given = parse({"path": REMOTE.path, **options})
    parts = partitions_of(pieces(is_remote=is_remote), given)
    return [[(one.start, one.end) for one in part.ranges] for part in parts]


def test_partitions_end_at_the_borders_of_remote_segments() -> None:
    assert cut(maxbytesperpartition="200m")[:2] == [[(0, 200)], [(200, 300)]]
    assert cut(maxbytesperpartition="1g") == [[(0, 300)], [(300, 1300)], [(1300, 1450)]]


def test_a_remote_segment_is_cut_only_if_it_is_too_large() -> None:
    found = cut(maxbytesperpartition="250m")
    assert found == [[(0, 200)], [(200, 300)], [(300, 550)], [(550, 800)], [(800, 1050)], [(1050, 1300)], [(1300, 1450)]]


@pytest.mark.parametrize("is_remote", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxbytesperpartition": "7m"},
        {"minpartitions": "5"},
        {"minpartitions": "50"},
        {"maxrecordsperpartition": "30"},
        {"maxrecordsperpartition": "130", "minpartitions": "9", "maxbytesperpartition": "150m"},
    ],
)
def test_partitions_hold_each_record_once(is_remote: bool, options: dict[str, str]) -> None:
    found = [one for part in cut(is_remote=is_remote, **options) for one in part]
    assert [at for start, end in found for at in range(start, end)] == list(range(sum(SEGMENTS)))
    assert len(found) >= int(options.get("minpartitions", "1"))
    assert max(end - start for start, end in found) <= int(options.get("maxrecordsperpartition", "10000"))
