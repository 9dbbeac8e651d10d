"""The index of a segment: what is missing, damaged or wrong is built anew, and what it says is true."""

import os
import random
import struct

import pytest

import jlog
import oracle
from crash.tampering import flip
from jlog._core.segments.index import SparseIndex, build_index, load_index, read_index
from jlog.errors import UnsupportedFormat

NO_TIME = -(2**63)


@pytest.fixture
def journal(tmp_path):
    """A sealed segment of some 800 KiB in blocks of 4 KiB, and an open one after it."""
    with jlog.Writer(tmp_path / "j", precommit=4 << 10, segment_bytes=1 << 20) as writer:
        for number in range(7000):
            writer.append(b"%d " % number + b"x" * 100, timestamp_us=number * 10 - (number % 90) * 5)
        writer.roll()
        writer.append(b"open")
    return jlog.Journal(tmp_path / "j")


@pytest.fixture
def sealed(journal):
    return journal.segments()[0]


@pytest.fixture
def uuid(journal):
    return bytes.fromhex(journal.uuid)


@pytest.fixture
def index_path(sealed):
    return sealed.path[:-4] + ".idx"


def seal(content):
    return content[:12] + struct.pack("<I", oracle.structure_crc(content)) + content[16:]


def rewrite(path, change):
    with open(path, "rb") as file:
        content = bytearray(file.read())
    change(content)
    with open(path, "wb") as file:
        file.write(seal(bytes(content)))


def values_from(journal, sequence):
    with jlog.Reader(journal.path, start=sequence) as reader:
        return int(next(reader.values()).split()[0])


def test_a_sealed_segment_has_one_that_agrees_with_its_blocks(journal, sealed, uuid):
    index = read_index(journal.path, 0, uuid)
    assert index.entries == build_index(journal.path, 0, uuid, sealed.size_bytes).entries
    assert len(index.entries) > 10
    assert index.end[:2] == (sealed.end_sequence, sealed.size_bytes)


def test_the_open_segment_has_no_file(journal):
    assert not os.path.exists(journal.segments()[-1].path[:-4] + ".idx")


def test_locate_is_the_last_entry_at_or_before_the_sequence(journal, uuid):
    index = read_index(journal.path, 0, uuid)
    firsts = [first for first, _, _ in index.entries[:-1]]
    for sequence in random.Random(1).sample(range(7000), 200):
        assert index.locate(sequence)[0] == max(first for first in firsts if first <= sequence)
    assert index.locate(1 << 60) == index.entries[-2]


def test_locate_time_is_an_entry_before_which_all_is_earlier(journal, uuid):
    index = read_index(journal.path, 0, uuid)
    times = [number * 10 - (number % 90) * 5 for number in range(7000)]
    for time_us in range(-500, 70_500, 501):
        found = index.locate_time(time_us)
        if found is None:
            assert max(times) < time_us
        else:
            assert all(time < time_us for time in times[: found[0]])


def test_a_segment_without_records_has_an_index_too(tmp_path):
    index = SparseIndex([(0, 96, NO_TIME), (0, 168, NO_TIME)])
    assert index.locate(5) == (0, 96, NO_TIME)
    assert index.locate_time(0) is None
    journal = jlog.Journal.create(tmp_path / "j")
    assert build_index(journal.path, 0, bytes.fromhex(journal.uuid), 1 << 60).entries == index.entries


def test_a_missing_one_is_built_anew(journal, index_path):
    os.unlink(index_path)
    assert [values_from(journal, sequence) for sequence in (0, 1, 3500, 6999)] == [0, 1, 3500, 6999]


@pytest.mark.damage
@pytest.mark.parametrize("content", [b"", b"x" * 10, bytes(48), b"\xff" * 4096], ids=["empty", "short", "zeros", "noise"])
def test_one_that_is_not_an_index_is_built_anew(journal, uuid, index_path, content):
    with open(index_path, "wb") as file:
        file.write(content)
    assert read_index(journal.path, 0, uuid) is None
    assert [values_from(journal, sequence) for sequence in (0, 3500, 6999)] == [0, 3500, 6999]


@pytest.mark.damage
@pytest.mark.parametrize(
    "at",
    [
        0,
        8,
        12,
        16,
        32,
        40,
        48,
        60,
        -1,
    ],
)
def test_one_that_fails_its_crc_is_built_anew(journal, uuid, index_path, at):
    flip(index_path, at)
    assert read_index(journal.path, 0, uuid) is None
    assert [values_from(journal, sequence) for sequence in (0, 3500, 6999)] == [0, 3500, 6999]


@pytest.mark.damage
def test_one_that_is_cut_off_is_built_anew(journal, uuid, index_path):
    os.truncate(index_path, os.path.getsize(index_path) - 24)
    assert read_index(journal.path, 0, uuid) is None
    assert values_from(journal, 3500) == 3500


@pytest.mark.damage
def test_another_segments_or_journals_is_built_anew(journal, uuid, index_path):
    with open(index_path, "rb") as file:
        content = file.read()
    for at, replacement in ((16, bytes(16)), (32, struct.pack("<Q", 5))):
        with open(index_path, "wb") as file:
            file.write(seal(content[:at] + replacement + content[at + len(replacement) :]))
        assert read_index(journal.path, 0, uuid) is None
        assert values_from(journal, 3500) == 3500


@pytest.mark.damage
def test_one_that_ends_elsewhere_than_its_segment_is_built_anew(journal, sealed, uuid, index_path):
    rewrite(index_path, lambda content: struct.pack_into("<Q", content, len(content) - 16, sealed.size_bytes + 8))
    right = build_index(journal.path, 0, uuid, sealed.size_bytes)
    assert load_index(journal.path, 0, uuid, sealed.size_bytes).entries == right.entries
    assert values_from(journal, 3500) == 3500


def shift_offsets(content):
    for at in range(48 + 24, len(content) - 24, 24):
        first, offset, time_us = struct.unpack_from("<QQq", content, at)
        struct.pack_into("<QQq", content, at, first, offset + 8, time_us)


def shift_sequences(content):
    for at in range(48 + 24, len(content) - 24, 24):
        first, offset, time_us = struct.unpack_from("<QQq", content, at)
        struct.pack_into("<QQq", content, at, first + 3, offset, time_us)


@pytest.mark.damage
@pytest.mark.parametrize("change", [shift_offsets, shift_sequences])
def test_one_that_disagrees_with_the_blocks_is_built_anew(journal, index_path, change):
    rewrite(index_path, change)
    assert [values_from(journal, sequence) for sequence in (0, 3500, 6999)] == [0, 3500, 6999]


@pytest.mark.damage
def test_a_newer_version_is_not_read(journal, uuid, index_path):
    rewrite(index_path, lambda content: struct.pack_into("<I", content, 8, 2))
    with pytest.raises(UnsupportedFormat, match=r"version 2.*upgrade"):
        read_index(journal.path, 0, uuid)


def test_one_left_half_made_is_ignored(journal, index_path):
    os.rename(index_path, os.path.join(journal.path, "next.0.0.idx"))
    assert values_from(journal, 3500) == 3500
    assert journal.verify().ok
