"""Small facts in two copies: what is torn, damaged, older or another journal's does not count."""

import os
import resource
import struct

import pytest

import oracle
from crash.tampering import change, invert
from jlog._core.format.dual_slot import BoundsFile, read_position, write_position
from jlog._core.system.lock import LockFile
from jlog.errors import CorruptJournal, UnsupportedFormat

UUID, OTHER = bytes(range(16)), bytes(16)


@pytest.fixture
def bounds(tmp_path):
    path = str(tmp_path / "bounds")
    BoundsFile.create(path, UUID, 1000, (0, 168, 0))
    return BoundsFile(path, UUID, LockFile(str(tmp_path / "lock"), create=True))


@pytest.fixture
def position(tmp_path):
    path = str(tmp_path / "billing")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    write_position(fd, UUID, 77, 5, path)
    write_position(fd, UUID, 77, 6, path)
    yield fd, path
    os.close(fd)


def seal(path, offset, size):
    """Makes the CRC of what has been changed right again."""
    with open(path, "rb") as file:
        file.seek(offset)
        structure = file.read(size)
    change(path, offset + 12, struct.pack("<I", oracle.structure_crc(structure)))


# --- Positions ----------------------------------------------------------------------------------------------------


def test_a_position_comes_back_with_its_epoch(position):
    found = read_position(position[0], UUID, position[1])
    assert (found.sequence, found.epoch) == (6, 77)
    assert found.moved_us > 10**15


@pytest.mark.parametrize("sequence", [0, 1, 2**62])
def test_any_sequence_is_kept(position, sequence):
    write_position(position[0], UUID, 1, sequence, position[1])
    assert read_position(position[0], UUID, position[1]).sequence == sequence


@pytest.mark.parametrize("written", range(0, 65, 4))
def test_a_torn_write_of_the_first_copy_leaves_old_or_new(tmp_path, position, written):
    fd, path = position
    before = (tmp_path / "billing").read_bytes()
    write_position(fd, UUID, 77, 9, path)
    after = (tmp_path / "billing").read_bytes()
    torn = after[:written] + before[written:]
    (tmp_path / "billing").write_bytes(torn)
    assert read_position(fd, UUID, path).sequence == (9 if torn[:64] == after[:64] else 6)


@pytest.mark.parametrize("limits", [(4096 + 16, 16), (16, 4096 + 16), (16, 16), (4096 + 16, 4096 + 16)])
def test_writes_that_are_cut_short_leave_a_whole_copy(position, limits):
    fd, path = position
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                write_position(fd, UUID, 77, 9, path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert read_position(fd, UUID, path).sequence in (6, 9)
    write_position(fd, UUID, 77, 10, path)
    assert read_position(fd, UUID, path).sequence == 10


def test_the_newer_copy_counts_on_whichever_side_it_stands(tmp_path, position):
    fd, path = position
    before = (tmp_path / "billing").read_bytes()
    write_position(fd, UUID, 77, 9, path)
    after = (tmp_path / "billing").read_bytes()
    for first, second in ((before, after), (after, before)):
        (tmp_path / "billing").write_bytes(first[:4096] + second[4096:])
        assert read_position(fd, UUID, path).sequence == 9


@pytest.mark.parametrize("damaged", [0, 4096])
@pytest.mark.parametrize("at", [0, 8, 13, 16, 24, 40, 48, 63])
def test_one_damaged_copy_leaves_the_other(position, damaged, at):
    fd, path = position
    invert(path, damaged + at)
    assert read_position(fd, UUID, path).sequence == 6
    write_position(fd, UUID, 77, 7, path)
    assert read_position(fd, UUID, path).sequence == 7


@pytest.mark.parametrize("content", [b"", bytes(8192), b"\xff" * 8192, b"JLOGPOS\n" * 1024])
def test_without_a_valid_copy_it_is_damage_until_it_is_written(tmp_path, position, content):
    fd, path = position
    (tmp_path / "billing").write_bytes(content)
    with pytest.raises(CorruptJournal, match=r"billing.*neither copy"):
        read_position(fd, UUID, path)
    write_position(fd, UUID, 77, 3, path)
    assert read_position(fd, UUID, path).sequence == 3


def test_another_journals_position_does_not_count(position):
    with pytest.raises(CorruptJournal):
        read_position(position[0], OTHER, position[1])


def test_a_newer_version_of_a_position_is_not_read(position):
    fd, path = position
    change(path, 8, struct.pack("<I", 2))
    seal(path, 0, 64)
    with pytest.raises(UnsupportedFormat, match=r"version 2.*upgrade"):
        read_position(fd, UUID, path)


def test_a_damaged_version_is_damage_and_not_a_newer_one(position):
    fd, path = position
    change(path, 8, struct.pack("<I", 2))
    assert read_position(fd, UUID, path).sequence == 6


# --- Bounds -------------------------------------------------------------------------------------------------------


def test_new_bounds_are_closed_at_the_beginning(bounds):
    found = bounds.read()
    assert (found.first_sequence, found.reservation_limit, found.closed) == (0, 1000, (0, 168, 0))
    assert (found.mark_segment, found.mark_offset, found.mark_sequence) == (0, 0, 0)


def test_growing_fields_of_bounds_never_shrink(bounds):
    bounds.update(first_sequence=50, reservation_limit=2000, mark=(40, 500, 60))
    found = bounds.update(first_sequence=40, reservation_limit=1500, mark=(0, 168, 5))
    assert (found.first_sequence, found.reservation_limit) == (50, 2000)
    assert (found.mark_segment, found.mark_offset, found.mark_sequence) == (40, 500, 60)


def test_the_closed_end_is_left_set_and_taken_away(bounds):
    assert bounds.update(reservation_limit=5000).closed == (0, 168, 0)
    assert bounds.update(closed=None).closed is None
    assert bounds.update(closed=(10, 300, 20), durable=True).closed == (10, 300, 20)
    assert bounds.read().closed == (10, 300, 20)


@pytest.mark.parametrize("written", [0, 16, 40, 72, 100, 127, 128])
def test_a_torn_write_of_bounds_leaves_the_old_or_the_new(tmp_path, bounds, written):
    before = (tmp_path / "bounds").read_bytes()
    bounds.update(first_sequence=50, reservation_limit=1 << 40, closed=None, mark=(40, 500, 60))
    after = (tmp_path / "bounds").read_bytes()
    torn = after[:written] + before[written:]
    (tmp_path / "bounds").write_bytes(torn)
    assert bounds.read().first_sequence == (50 if torn[:128] == after[:128] else 0)


@pytest.mark.parametrize("damaged", [0, 4096])
def test_one_damaged_copy_of_bounds_leaves_the_other(tmp_path, bounds, damaged):
    """The next write repairs both."""
    invert(bounds.path, damaged + 50)
    assert bounds.read().reservation_limit == 1000
    bounds.update(reservation_limit=2000)
    content = (tmp_path / "bounds").read_bytes()
    assert content[:128] == content[4096:4224]


def test_bounds_without_a_valid_copy_are_not_read_or_written(tmp_path, bounds):
    (tmp_path / "bounds").write_bytes(bytes(8192))
    for call in (bounds.read, lambda: bounds.update(reservation_limit=5000)):
        with pytest.raises(CorruptJournal, match="repair"):
            call()
    assert (tmp_path / "bounds").read_bytes() == bytes(8192)


def test_a_newer_version_of_bounds_is_not_read(bounds):
    change(bounds.path, 8, struct.pack("<I", 2))
    seal(bounds.path, 0, 128)
    with pytest.raises(UnsupportedFormat, match=r"version 2.*upgrade"):
        bounds.read()


def test_bounds_opened_for_reading_cannot_be_changed(tmp_path, bounds):
    reading = BoundsFile(bounds.path, UUID, LockFile(str(tmp_path / "lock")), writable=False)
    assert reading.read().reservation_limit == 1000
    with pytest.raises(OSError):  # noqa: PT011
        reading.update(reservation_limit=2000)
    assert bounds.read().reservation_limit == 1000
