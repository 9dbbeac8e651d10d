"""The last writer to close syncs: what was closed is never beyond the end, whatever damage a copy or a reboot meets in it. The
same is true of what a killed writer has written, unless a power loss may have taken it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import jlog
from crash.flips import check_flips
from crash.tampering import another_boot, copy, flip, quarantined, zero
from jlog._core.format.dual_slot import BoundsFile

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


@pytest.fixture
def killed(spawn, tmp_path: Path) -> Path:
    """A journal that nobody has ever synced, whose writer was killed."""
    path, child = tmp_path / "killed", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10, "segment_bytes": 8 << 10, "sync": "none"})
    child.call("append", "w", RECORDS, 100)
    child.kill()
    return path


@pytest.mark.parametrize("place", [20, 130, 4000])
def test_damage_that_a_killed_writer_leaves_is_told_after_another_boot(killed: Path, place: int) -> None:
    """A power loss takes whole sectors: a byte in between is damage, though nothing after it was synced."""
    another_boot(killed)
    file = sorted(killed.glob("*.seg"))[DAMAGED]
    flip(file, place, 3)
    report = jlog.Journal(killed).verify()
    (damage,) = report.damage
    assert damage.path == str(file)
    assert report.records == RECORDS - damage.records_lost == len(values_in(killed))
    with jlog.Writer(killed) as writer:
        writer.append(b"after")
    assert not quarantined(killed)
    assert len(values_in(killed)) == report.records + 1
    assert jlog.Journal.repair_at(killed).sound
    assert len(values_in(killed)) == report.records + 1


def test_a_segment_that_is_missing_before_others_is_damage(killed: Path) -> None:
    """The names of files reach the disk in their order."""
    another_boot(killed)
    files = sorted(killed.glob("*.seg"))
    missing, following = (int(file.stem) for file in files[DAMAGED : DAMAGED + 2])
    files[DAMAGED].unlink()
    (damage,) = jlog.Journal(killed).verify().damage
    assert (damage.first_sequence, damage.records_lost) == (missing, following - missing)
    with jlog.Writer(killed) as writer:
        writer.append(b"after")
    assert not quarantined(killed)
    assert len(values_in(killed)) == RECORDS - damage.records_lost + 1


def test_an_unsynced_segment_that_lost_a_sector_is_the_torn_end(killed: Path) -> None:
    another_boot(killed)
    file = sorted(killed.glob("*.seg"))[DAMAGED]
    zero(file, 512, 512)
    assert jlog.Journal(killed).verify().ok
    assert len(values_in(killed)) == int(file.stem)


def test_a_closed_end_that_the_mark_does_not_reach_is_not_beyond_the_end(killed: Path) -> None:
    """As writers have left it that synced nothing when they closed. A sector is missing that a power loss could have taken."""
    with jlog.Writer(killed):
        pass
    bounds = BoundsFile(str(killed / "bounds"), bytes.fromhex(jlog.Journal(killed).uuid), None, writable=False).read()
    (killed / "bounds").unlink()
    BoundsFile.create(str(killed / "bounds"), bytes.fromhex(jlog.Journal(killed).uuid), bounds.reservation_limit, bounds.closed)
    another_boot(killed)
    file = sorted(killed.glob("*.seg"))[DAMAGED]
    zero(file, 512, 512)
    (damage,) = jlog.Journal(killed).verify().damage
    assert damage.path == str(file)
    with jlog.Writer(killed) as writer:
        assert writer.append(b"after") == RECORDS
    assert len(values_in(killed)) == RECORDS - damage.records_lost + 1


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_costs_a_block_before_and_after_a_power_loss(killed: Path, tmp_path: Path, seed: int) -> None:
    assert check_flips(killed, tmp_path, Random(seed))


def test_the_first_segment_is_read_though_the_second_cannot_be_opened(closed: Path) -> None:
    second = sorted(closed.glob("*.seg"))[1]
    second.rename(second.with_suffix(".away"))
    second.symlink_to(second.with_suffix(".away"))
    closed.chmod(0o777)  # a link that another user may have put there is not followed
    with jlog.Reader(closed) as reader:
        found: list[int] = []
        with pytest.raises(jlog.JournalError, match=second.name):
            found.extend(record.sequence for record in reader)
    assert found == list(range(int(second.stem)))
