"""The last writer to close syncs: what was closed is never beyond the end, whatever damage a copy or a reboot meets in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import jlog
from crash.tampering import another_boot, copy, flip, quarantined

pytestmark = pytest.mark.damage

RECORDS = 400
DAMAGED = 2  # index of the segment with the flipped byte


def values_in(path: Path) -> list[bytes]:
    """The values that can be read, past all damage."""
    found: list[bytes] = []
    with jlog.Reader(path) as reader:
        while True:
            try:
                found += reader.values()
                return found
            except jlog.CorruptJournal:
                reader.skip_damage()


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A journal that was closed and never synced by its user, with a flipped byte in one of its first sealed segments."""
    path = tmp_path / "closed"
    keep = jlog.Retention(delete_read=False)
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=8 << 10, sync="none", retention=keep) as writer:
        for number in range(RECORDS):
            writer.append(b"%06d" % number + b"." * 100)
    with jlog.Reader(path, "late") as reader:
        reader.seek(RECORDS - 10)
        reader.commit()
    flip(sorted(path.glob("*.seg"))[DAMAGED], 4000, 3)
    return path


@pytest.fixture(params=["copied", "rebooted"])
def later(request: pytest.FixtureRequest, closed: Path, tmp_path: Path) -> Path:
    """The journal after a copy, or in another boot."""
    if request.param == "copied":
        return copy(closed, tmp_path / "copied")
    another_boot(closed)
    return closed


def test_verify_lists_the_damage_and_counts_what_follows_it(later: Path) -> None:
    report = jlog.Journal(later).verify()
    (damage,) = report.damage
    assert damage.path == str(sorted(later.glob("*.seg"))[DAMAGED])
    assert report.records == RECORDS - damage.records_lost
    assert 0 < damage.records_lost < 50
    assert len(values_in(later)) == report.records


def test_a_subscriber_after_the_damage_keeps_its_place(later: Path) -> None:
    assert jlog.Journal(later).subscribers()["late"].lag == 10
    with jlog.Reader(later, "late") as reader:
        assert [record.sequence for record in reader] == list(range(RECORDS - 10, RECORDS))


def test_an_append_moves_nothing_away(later: Path) -> None:
    before = values_in(later)
    with jlog.Writer(later) as writer:
        assert writer.append(b"after") == RECORDS
    assert not quarantined(later)
    assert values_in(later) == [*before, b"after"]


def test_repair_keeps_all_that_can_be_read(later: Path) -> None:
    before = values_in(later)
    with jlog.Writer(later) as writer:
        writer.append(b"after")
    assert jlog.Journal.repair_at(later).sound
    assert values_in(later) == [*before, b"after"]
    assert jlog.Journal(later).verify().ok
