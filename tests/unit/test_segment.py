"""Segment files: their header, their blocks, and what is left of damaged ones."""

import itertools
import os
import random
import struct

import lz4.block
import pytest

import jlog
import oracle
from crash.tampering import change, invert
from jlog._core.format.lz4 import decompress
from jlog._core.segments.segment import (
    BLOCK_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentFile,
    first_time,
    index_name,
    list_segments,
    segment_name,
    walk_body,
)
from jlog.errors import CorruptJournal, UnsupportedFormat

pytestmark = pytest.mark.damage


@pytest.fixture
def journal(tmp_path):
    with jlog.Writer(tmp_path / "j", precommit=4 << 10) as writer:
        for number in range(5):
            writer.extend([b"%d" % number] * 10, timestamps_us=[1000 + number] * 10)
            writer.flush()
        writer.extend([], state={b"k": b"v"})
    return jlog.Journal(tmp_path / "j")


@pytest.fixture
def path(journal):
    return journal.segments()[0].path


@pytest.fixture
def uuid(journal):
    return bytes.fromhex(journal.uuid)


@pytest.fixture
def opened(journal, uuid):
    return lambda **options: SegmentFile(journal.path, 0, uuid, **options)


def seal_header(path):
    with open(path, "rb") as file:
        change(path, 12, struct.pack("<I", oracle.structure_crc(file.read(SEGMENT_HEADER_BYTES))))


def test_names_are_20_digits_and_sort_as_numbers():
    assert segment_name(0) == "00000000000000000000.seg"
    assert segment_name(2**64 - 1) == "18446744073709551615.seg"
    assert index_name(7) == "00000000000000000007.idx"
    assert segment_name(9) < segment_name(10) < segment_name(2**40)


def test_only_segments_are_listed_in_order(tmp_path):
    for name in ("10", "2", "x" * 20, "0" * 19, "9" * 21, "5"):
        (tmp_path / f"{name.rjust(20, '0') if len(name) < 19 else name}.seg").touch()
    (tmp_path / f"{3:020d}.idx").touch()
    (tmp_path / "next.0.1").touch()
    assert list_segments(tmp_path) == [2, 5, 10]


def test_blocks_are_a_chain_from_the_header_to_the_end(opened):
    blocks = list(opened().blocks(with_body=True))
    assert [(block.kind, block.records, block.has_state) for block in blocks] == [
        (2, 0, False),
        *[(1, 10, False)] * 5,
        (1, 0, True),
    ]
    assert blocks[0].offset == SEGMENT_HEADER_BYTES
    for block, following in itertools.pairwise(blocks):
        assert following.offset == block.offset + BLOCK_HEADER_BYTES + block.stored_bytes
        assert following.first_sequence == block.first_sequence + block.records


def test_the_end_of_the_blocks_is_not_damage(opened, path):
    end = os.path.getsize(path)
    assert opened().block_at(end) == (None, None)
    os.truncate(path, end + 4096)
    assert opened().block_at(end) == (None, None)


HEADER = {
    "magic": 0,
    "version": 8,
    "crc": 12,
    "uuid": 16,
    "epoch": 32,
    "first": 40,
    "previous": 48,
    "reserved": 90,
}


@pytest.mark.parametrize("at", HEADER.values(), ids=HEADER.keys())
def test_a_damaged_header_is_damage_and_its_blocks_are_readable(opened, path, at):
    """The damage is at byte 0."""
    invert(path, at)
    with pytest.raises(CorruptJournal, match="header") as caught:
        opened()
    assert (caught.value.path, caught.value.offset) == (path, 0)
    assert len(list(opened(check_header=False).blocks())) == 7


@pytest.mark.parametrize("left", [0, 1, 95])
def test_a_header_that_is_cut_off_is_damage(opened, path, left):
    os.truncate(path, left)
    with pytest.raises(CorruptJournal, match="header is missing"):
        opened()


def test_a_newer_version_is_not_read(opened, path):
    change(path, 8, struct.pack("<I", 3))
    seal_header(path)
    with pytest.raises(UnsupportedFormat, match=f"{path}.*version 3.*upgrade"):
        opened()


def test_another_journals_segment_is_none_of_this_one(opened, path):
    change(path, 16, bytes(16))
    seal_header(path)
    with pytest.raises(CorruptJournal, match="another journal"):
        opened()


def test_a_segment_under_another_name_is_none(journal, path, uuid):
    os.rename(path, os.path.join(journal.path, segment_name(7)))
    with pytest.raises(CorruptJournal, match="begins with sequence 0"):
        SegmentFile(journal.path, 7, uuid)


def test_every_byte_of_a_block_is_under_a_checksum(opened, path):
    block = list(opened().blocks())[2]
    end = block.offset + BLOCK_HEADER_BYTES + block.stored_bytes
    with open(path, "rb") as file:
        content = file.read()
    for at in range(block.offset, end):
        change(path, at, bytes([content[at] ^ 1]))
        found, reason = opened().block_at(block.offset)
        assert found is None
        assert reason is not None
        change(path, at, content[at : at + 1])
    assert opened().block_at(block.offset)[0] == block


def test_a_block_at_another_place_is_not_a_block(opened, path):
    block = list(opened().blocks())[2]
    with open(path, "rb") as file:
        file.seek(block.offset)
        image = file.read(BLOCK_HEADER_BYTES + block.stored_bytes)
    end = os.path.getsize(path)
    with open(path, "ab") as file:
        file.write(image)
    assert opened().block_at(end)[0] is None
    assert opened().next_block(end, end + len(image)) is None


def test_the_next_block_after_damage_is_found_anywhere(opened, path):
    blocks = list(opened().blocks())
    change(path, blocks[2].offset, b"\0\0\0\0")
    assert opened().next_block(blocks[2].offset + 1, 1 << 30) == blocks[3]
    assert opened().next_block(blocks[6].offset + 1, 1 << 30) is None


def test_the_next_block_is_found_beyond_a_window(journal, uuid, tmp_path):
    with jlog.Writer(journal.path) as writer:
        writer.append(bytes(3 << 20))
        writer.append(b"after")
    blocks = [block for _, block in journal.blocks()]
    assert SegmentFile(journal.path, 0, uuid).next_block(blocks[-2].offset + 1, 1 << 30) == blocks[-1]


def test_a_header_that_asks_for_too_much_takes_no_memory(opened, path):
    block = list(opened().blocks())[-1]
    os.truncate(path, block.offset + BLOCK_HEADER_BYTES)
    assert opened().block_at(block.offset) == (None, "the block's body fails its checksum")
    with pytest.raises(CorruptJournal):
        opened().raw_body(block.offset)


def test_the_state_before_a_place_is_that_of_earlier_blocks(opened):
    file = opened()
    block = list(file.blocks())[-1]
    assert file.state_before(block.offset) == {}
    assert file.state_before(block.offset + 1) == {b"k": b"v"}


def test_a_body_is_walked_from_its_first_record_to_its_last(opened):
    file = opened()
    block = list(file.blocks())[1]
    raw = file.raw_body(block.offset)
    records, _, explicit_max_us, last_us, explicit = walk_body(raw, block.base_time_us)
    assert (records, explicit_max_us, last_us, explicit) == (10, 1000, 1000, 10)
    assert first_time(raw, block.base_time_us) == 1000


SHORT = struct.pack("<II", 3, 0) + b"abc"


@pytest.mark.parametrize(
    "raw",
    [
        SHORT[:-1],
        SHORT + b"\0",
        SHORT + SHORT[:7],
        struct.pack("<II", 1 << 29, 0),
        struct.pack("<IIIII", 1 << 31, 0, 2**32 - 1, 2**32 - 1, 2**32 - 1),
        struct.pack("<IIIII", 1 << 31 | 1, 0, 0, 0, 0),
        struct.pack("<IIIII", 1 << 31 | 1 << 28, 0, 1, 0, 0) + b"x",
        struct.pack("<IIIII", 1 << 31, 0, 0, 1, 0) + b"x",
        struct.pack("<IIIII", 1 << 31 | 1 << 29, 0, 0, 0, 0),
        struct.pack("<IIIII", 1 << 31 | 1 << 26, 0, 0, 0, 0),
    ],
    ids=[
        "value cut off",
        "a byte more",
        "second header cut off",
        "value beyond the body",
        "lengths that overflow",
        "reserved bit",
        "null with a value",
        "key bytes without a key",
        "state without a key",
        "absolute time cut off",
    ],
)
def test_a_body_that_is_not_a_sequence_of_records_is_refused(raw):
    with pytest.raises(ValueError, match="does not fit"):
        walk_body(raw, 0)


def test_any_noise_is_refused_or_walked_and_nothing_worse():
    for size in range(300):
        noise = random.Random(size).randbytes(size)
        try:
            walk_body(noise, 0)
        except ValueError:
            continue
        except Exception as error:
            raise AssertionError(f"of random.Random({size}).randbytes({size})") from error


def test_lz4_that_is_none_or_of_another_size_is_a_value_error():
    stored = lz4.block.compress(b"x" * 1000, store_size=False)
    assert decompress(stored, 1000) == b"x" * 1000
    for bad, size in ((b"noise", 1000), (stored, 999), (stored, 1001), (b"", 10)):
        with pytest.raises(ValueError, match="decompress"):
            decompress(bad, size)
