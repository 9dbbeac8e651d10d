"""compression="lz4": smaller files, the same records."""

import os
import random
import struct
from datetime import timedelta

import google_crc32c
import pytest

import jlog
import oracle
from behaviour.journals import fill, read_away, records, sequences, value_of, values
from crash.tampering import another_boot, copy, newest_segment, quarantined, zero
from processes.units import check_units

SMALL_LZ4 = {"precommit": 4 << 10, "segment_bytes": 16 << 10, "compression": "lz4"}
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARNING", "ERROR")


def log_lines(count, seed=7):
    """As a web service writes them: much that repeats, and ids, addresses and durations that do not."""
    chance = random.Random(seed)
    return [
        f"2026-11-20T12:{number // 3000 % 60:02}:{number // 50 % 60:02}.{chance.randrange(1000):03}Z "
        f"{chance.choice(LEVELS)} app.orders.api request_id={chance.getrandbits(32):08x} method=GET "
        f"path=/v1/orders/{chance.randrange(100_000)} status={chance.choice((200, 200, 200, 404, 500))} "
        f"duration_ms={chance.randrange(2000)} client=10.0.{chance.randrange(4)}.{chance.randrange(256)}".encode()
        for number in range(count)
    ]


def noise(count, size=100, seed=7):
    chance = random.Random(seed)
    return [chance.randbytes(size) for _ in range(count)]


def blocks(path):
    return [block for _, block in jlog.Journal(path).blocks() if block.records]


def codecs(path):
    return {block.codec for block in blocks(path)}


def as_the_oracle_says(path):
    return [record.value for record in oracle.read_journal(path).records]


# --- How small ---------------------------------------------------------------------------------------------------


def test_log_lines_take_at_most_35_percent_of_their_plain_size(tmp_path):
    lines, sizes = log_lines(10_000), {}
    for compression in ("none", "lz4"):
        path = tmp_path / compression
        with jlog.Writer(path, compression=compression) as writer:
            for line in lines:
                writer.append(line)
        sizes[compression] = jlog.Journal(path).size_bytes
        assert values(path) == as_the_oracle_says(path) == lines
    assert codecs(tmp_path / "lz4") == {1}
    assert sizes["lz4"] <= 0.35 * sizes["none"], sizes


def test_an_incompressible_block_is_stored_as_it_is(path):
    written = noise(500)
    with jlog.Writer(path, **SMALL_LZ4) as writer:
        for value in written:
            writer.append(value)
        writer.extend(written)
    # Heads of records are small numbers, which compress: the block is never larger than without.
    assert all(block.stored_bytes <= block.raw_bytes for block in blocks(path))
    assert values(path) == as_the_oracle_says(path) == written * 2
    with jlog.Writer(path, precommit=0) as writer:
        writer.append(noise(1, 5000)[0])
    assert blocks(path)[-1].codec == 0


@pytest.mark.parametrize("size", [0, 1, 10, 100])
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_tiny_blocks_are_stored_as_they_are(path, precommit, size):
    with jlog.Writer(path, precommit=precommit, compression="lz4") as writer:
        for _ in range(5):
            writer.append(b"." * size)
            writer.flush()
    assert codecs(path) == {0}
    assert values(path) == [b"." * size] * 5


@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize("compressible", [True, False])
def test_a_value_of_20_mib_goes_through(path, precommit, compressible):
    value = b"all work and no play " * (1 << 20) if compressible else noise(1, 20 << 20)[0]
    with jlog.Writer(path, precommit=precommit, compression="lz4") as writer:
        written = fill(writer, 3)
        writer.append(value)
        written += [value, *fill(writer, 3)]
    assert values(path) == written
    size = jlog.Journal(path).size_bytes
    assert size < len(value) // 50 if compressible else size > len(value)
    assert jlog.Journal(path).verify().ok


def test_raw_bytes_are_told_beside_what_they_take(path):
    with jlog.Writer(path, compression="lz4") as writer:
        writer.extend(log_lines(1000))
    info = jlog.Journal(path).info()
    assert info["compression"] == "lz4"
    assert info["size_bytes"] < info["raw_bytes"] // 2
    stats = jlog.Journal(path).stats()
    assert stats.counters["stored_bytes"] < stats.counters["raw_bytes"] // 2


# --- Whose it is -------------------------------------------------------------------------------------------------


def test_it_is_kept_with_the_journal(path):
    with jlog.Writer(path, **SMALL_LZ4) as writer:
        fill(writer, 50)
    with jlog.Writer(path) as writer:
        fill(writer, 50)
    assert codecs(path) == {1}
    assert jlog.Journal(path).options.compression == "lz4"


def test_a_later_writer_changes_it_for_every_process(path, spawn):
    """The change holds for later blocks."""
    child = spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    child.call("append", "w", 100, 100)
    for compression, codec in (("lz4", 1), ("none", 0), ("lz4", 1)):
        with jlog.Writer(path, compression=compression) as writer:
            writer.flush()
        at = len(blocks(path))
        child.call("append", "w", 100, 100)
        child.call("extend", "w", 1, 60, 100)
        child.call("flush", "w")
        later = blocks(path)[at:]
        assert {block.codec for block in later} == {codec}
        assert len(later) > 3


def test_state_is_stored_and_carried_from_segment_to_segment(path):
    with jlog.Writer(path, **SMALL_LZ4) as writer:
        for number in range(30):
            writer.extend(log_lines(20), state={b"n": b"%d" % number, b"text": b"a" * 500})
        writer.roll()
        assert jlog.Journal(path).state() == {b"n": b"29", b"text": b"a" * 500}
    assert codecs(path) == {1}
    assert oracle.read_journal(path).state == {b"n": b"29", b"text": b"a" * 500}


# --- Reading -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(path):
    """600 records in blocks of both sorts, with some still in the buffer."""
    for turn in range(4):
        with jlog.Writer(path, **{**SMALL_LZ4, "compression": ("lz4", "none")[turn % 2]}) as writer:
            fill(writer, 100)
            writer.extend([value_of(number) for number in range(writer.next_sequence, writer.next_sequence + 45)])
    with jlog.Writer(path, compression="lz4") as writer:
        fill(writer, 20)
        assert codecs(path) == {0, 1}
        yield path


def test_mixed_blocks_are_read_in_order(mixed):
    assert values(mixed) == as_the_oracle_says(mixed) == [value_of(number) for number in range(600)]
    with jlog.Reader(mixed) as reader:
        found = []
        while batch := reader.read(max_records=7):
            found += batch.values()
    assert found == values(mixed)


def test_seek_finds_every_sequence_in_mixed_blocks(mixed):
    with jlog.Reader(mixed) as reader:
        for number in [*range(0, 600, 13), 599]:
            reader.seek(number)
            assert next(iter(reader)).value == value_of(number)
        reader.seek("end")
        assert list(reader) == []


def test_a_time_is_found_in_mixed_blocks(mixed):
    found, journal = records(mixed), jlog.Journal(mixed)
    for record in found[::29]:
        first = next(other for other in found if other.timestamp_us >= record.timestamp_us)
        assert journal.find(record.timestamp) == first.sequence
    assert journal.find(found[-1].timestamp + timedelta(seconds=1)) == 600


@pytest.mark.parametrize("count", [1, 100, 1000])
def test_mixed_blocks_are_read_backward(mixed, count):
    with jlog.Reader(mixed, start="end") as reader:
        found = []
        while back := list(reader.read_backward(count)):
            found += [record.value for record in back]
    assert found == [value_of(number) for number in reversed(range(600))]


def test_segments_that_were_read_go_whatever_their_blocks_are(mixed):
    read_away(mixed, "billing", 300)
    assert 0 < jlog.Journal(mixed).first_sequence <= 300
    with jlog.Reader(mixed, "billing") as reader:
        assert sequences(reader) == list(range(300, 600))


def test_mixed_blocks_verify(mixed):
    report = jlog.Journal(mixed).verify()
    assert report.ok, report
    assert report.records == 600


# --- Damage and power loss ---------------------------------------------------------------------------------------


def test_after_a_power_loss_mixed_blocks_are_all_there(mixed, tmp_path):
    path = copy(mixed, tmp_path / "copy")
    another_boot(path)
    assert values(path) == values(mixed)
    with jlog.Writer(path) as writer:
        writer.append(b"after")
    assert values(path) == [*values(mixed), b"after"]
    assert not quarantined(path)


def test_a_torn_block_that_was_never_synced_ends_the_journal(tmp_path):
    """It does so wherever it is cut."""
    written = [value_of(number) for number in range(30)]
    with jlog.Writer(tmp_path / "j", compression="lz4") as writer:
        for number in range(0, 30, 10):
            writer.extend(written[number : number + 10])
            writer.flush()
        killed = copy(tmp_path / "j", tmp_path / "killed")
    last = blocks(tmp_path / "j")[-1]
    for cut in range(last.offset, last.offset + 72 + last.stored_bytes, 7):
        path = copy(killed, tmp_path / "copy")
        zero(path / "precommit")  # else the block is had from there
        os.truncate(newest_segment(path), cut)
        assert values(path) == written[:20], cut
    with jlog.Writer(path) as writer:
        assert writer.append(b"after") >= 30
    assert values(path) == [*written[:20], b"after"]


@pytest.fixture
def one_block(path):
    """(segment, its content, the block, its values): all records lie in one compressed block."""
    written = [value_of(number) for number in range(8)]
    with jlog.Writer(path, compression="lz4") as writer:
        writer.extend(written)
        writer.sync()
    (block,) = blocks(path)
    assert block.codec == 1
    (segment,) = path.glob("*.seg")
    return segment, segment.read_bytes(), block, written


def read_damaged(path, written):
    """All of it, or an error: nothing else."""
    for read in (values, lambda path: jlog.Reader(path, start="end").read_backward(100).values()[::-1]):
        try:
            assert read(path) == written
        except jlog.CorruptJournal:
            continue
        return True
    return False


@pytest.mark.damage
def test_no_flipped_byte_of_a_compressed_block_is_returned(one_block, path):
    segment, content, block, written = one_block
    for offset in range(block.offset, block.offset + 72 + block.stored_bytes):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[offset] ^= change
            segment.write_bytes(damaged)
            assert not read_damaged(path, written), offset
        assert not jlog.Journal(path).verify().ok


@pytest.mark.damage
def test_a_stream_that_lz4_cannot_decompress_is_damage(one_block, path):
    """So is one that it decompresses wrongly, though all checksums are right: a faulty compressor or memory leaves such."""
    segment, content, block, written = one_block
    uuid = bytes.fromhex(jlog.Journal(path).uuid)
    begin, told = block.offset + 72, 0
    for offset in range(block.stored_bytes):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[begin + offset] ^= change
            stored = bytes(damaged[begin : begin + block.stored_bytes])
            header = damaged[block.offset : begin]
            struct.pack_into("<I", header, 12, google_crc32c.value(stored))
            struct.pack_into("<I", header, 8, 0)
            covered = uuid + struct.pack("<QQ", 0, block.offset) + bytes(header)
            struct.pack_into("<I", header, 8, google_crc32c.value(covered))
            damaged[block.offset : begin] = header
            segment.write_bytes(damaged)
            told += not read_damaged(path, written)  # some streams are another way to say the same
    assert told > 2 * block.stored_bytes


@pytest.mark.damage
def test_a_block_that_claims_an_impossible_size_takes_no_memory(one_block, path):
    segment, content, block, written = one_block
    uuid = bytes.fromhex(jlog.Journal(path).uuid)
    header = bytearray(content[block.offset : block.offset + 72])
    for raw_bytes in (block.stored_bytes * 256, 1610612736, 2**32 - 1):
        struct.pack_into("<I", header, 28, raw_bytes)
        struct.pack_into("<I", header, 8, 0)
        covered = uuid + struct.pack("<QQ", 0, block.offset) + bytes(header)
        struct.pack_into("<I", header, 8, google_crc32c.value(covered))
        segment.write_bytes(content[: block.offset] + bytes(header) + content[block.offset + 72 :])
        assert not read_damaged(path, written)


# --- Outside the lock --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [("append", "x", 200, 100), ("flush", "x"), ("roll", "x"), ("sync", "x"),
                                  ("extend", "x", 1, 2, 100, True), ("close", "x")])  # fmt: skip
def test_a_process_stopped_in_compression_delays_nobody(spawn, path, failpoints, call):
    stopped, other = spawn(), spawn()
    stopped.call("open_writer", "w", str(path), SMALL_LZ4)
    other.call("open_writer", "x", str(path), {})
    stopped.call("append", "w", 20, 100)
    stopped.call("arm", "compress.copied=stop@1")
    stopped.start("append", "w", 100, 100)
    stopped.is_stopped()
    other.call(*call)
    stopped.continues()
    stopped.result()
    if call[0] != "close":
        other.call("append", "x", 50, 100)
    check_units(path, stopped.acknowledged + other.acknowledged)


def test_a_block_whose_compressor_was_killed_is_taken_by_others(spawn, path, failpoints):
    victim, other = spawn(), spawn()
    victim.call("open_writer", "w", str(path), SMALL_LZ4)
    other.call("open_writer", "x", str(path), {})
    victim.call("arm", "compress.copied=kill@1")
    victim.dies("append", "w", 100, 100)
    other.call("append", "x", 100, 100)
    records = check_units(path, victim.acknowledged + other.acknowledged)
    assert len(records) in (len(victim.acknowledged) + 100, len(victim.acknowledged) + 101)
    assert codecs(path) == {1}


def test_threads_and_processes_that_fill_one_block_lose_nothing(spawn, path):
    children = [spawn() for _ in range(2)]
    for child, precommit in zip(children, (4 << 10, 0), strict=True):
        child.call("open_writer", "w", str(path), {**SMALL_LZ4, "precommit": precommit})
    for number, child in enumerate(children):
        child.start("append_in_threads", [f"t{number}{i}" for i in range(3)], 150, "w")
    for child in children:
        child.result()
    assert len(check_units(path, children[0].acknowledged + children[1].acknowledged)) == 900
    assert 1 in codecs(path)
