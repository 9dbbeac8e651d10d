"""Files that somebody made to do harm: each is told as damage, or read for what it says, in bounded memory and time.

`make test` puts a choice of the numbers into each field, `pytest --exhaustive` every one.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import exhaustive
import jlog
import oracle
from behaviour import hostile
from behaviour.hostile import Block, set_bounds, set_meta, set_position, set_segment_header, set_slot
from crash.tampering import change, name_itself

pytestmark = pytest.mark.damage

NONE = 2**64 - 1
HUGE = 2**63 - 1
TERABYTE = 1 << 40


# --- A journal, and every way into it --------------------------------------------------------------------------------


def make(path: Path) -> Path:
    """Three segments with an index, keys, headers, state and a subscriber; and records in the buffer."""
    with jlog.Writer(path, precommit=4096, segment_bytes=4096, retention=jlog.Retention(delete_read=False)) as writer:
        for turn in range(3):
            writer.extend([b"%d." % turn * 20] * 6, state={b"turn": b"%d" % turn})
            writer.append(b"headed", key=b"key", headers=[("name", b"value"), ("null", None)])
            writer.flush()
            if turn < 2:
                writer.roll()
        writer.sync()
    with jlog.Reader(path, "billing") as reader:
        reader.read(3)
        reader.commit()
    jlog.Journal(path).set_checkpoint("noon", 4)
    return path


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    return make(tmp_path_factory.mktemp("hostile") / "j")


@pytest.fixture
def journal(template, in_memory):
    """As its writers have closed it."""
    return Path(shutil.copytree(template, in_memory / "j"))


@pytest.fixture
def killed(template, in_memory):
    """As if its writers had just been killed, with records in the buffer: the control page says where it ends."""
    path = Path(shutil.copytree(template, in_memory / "j"))
    writer = jlog.Writer(path)
    for _ in range(3):
        writer.append(b"in the buffer")
    copied = Path(shutil.copytree(path, in_memory / "killed"))
    writer.close()
    name_itself(copied / "precommit")
    return copied


def outcomes(path: Path) -> dict[str, tuple[str, str]]:
    """Returns the result of every way in."""
    return hostile.outcomes(hostile.every_way_in(path, path.parent / "copy"))


def kinds(path: Path, *names: str) -> set[str]:
    found = outcomes(path)
    return {found[name][0] for name in names or found}


# --- journal.meta ------------------------------------------------------------------------------------------------------


def option(name: str, value: Any) -> Any:
    return lambda fields: fields["options"].__setitem__(name, value)


def retention(name: str, value: Any) -> Any:
    return lambda fields: fields["options"]["retention"].__setitem__(name, value)


def field(name: str, value: Any) -> Any:
    return lambda fields: fields.__setitem__(name, value)


METAS = {
    "no object": b"[]",
    "deep": b"[" * 1_000_000,
    "deep object": b'{"a":' * 1_000_000,
    "a number of many digits": b'{"inode": ' + b"9" * 100_000 + b"}",
    "nothing": b"{}",
    "not UTF-8": b'{"uuid": "\xff"}',
    "without epochs": lambda fields: fields.pop("epochs") and None,
    "without options": lambda fields: fields.pop("options") and None,
    "without a uuid": lambda fields: fields.pop("uuid") and None,
    "epochs is empty": field("epochs", []),
    "epochs is an object": field("epochs", {}),
    "an epoch is a number": field("epochs", [1]),
    "an epoch without a sequence": field("epochs", [{"epoch": 1}]),
    "a negative epoch": field("epochs", [{"epoch": -1, "first_sequence": 0}]),
    "an epoch of 70 bits": field("epochs", [{"epoch": 1 << 70, "first_sequence": 0}]),
    "an epoch that is a bool": field("epochs", [{"epoch": True, "first_sequence": 0}]),
    "an epoch that is a float": field("epochs", [{"epoch": 1.5, "first_sequence": 0}]),
    "an epoch beyond all numbers": field("epochs", [{"epoch": 1, "first_sequence": HUGE}]),
    "a short uuid": field("uuid", "00"),
    "a uuid of capitals": field("uuid", "AB" * 16),
    "a uuid with blanks": field("uuid", " " + "ab" * 15 + " "),
    "a uuid that is a number": field("uuid", 7),
    "inode is text": field("inode", "7"),
    "inode is negative": field("inode", -1),
    "birth_us is huge": field("birth_us", 1 << 80),
    "options is a list": field("options", []),
    "segment_bytes is negative": option("segment_bytes", -1),
    "segment_bytes is huge": option("segment_bytes", 1 << 100),
    "segment_bytes is text": option("segment_bytes", "4096"),
    "segment_bytes is a bool": option("segment_bytes", True),
    "segment_bytes is null": option("segment_bytes", None),
    "precommit is 0": option("precommit", 0),
    "precommit is huge": option("precommit", 1 << 62),
    "compression is unknown": option("compression", "zip"),
    "compression is a list": option("compression", ["lz4"]),
    "roll is a number": option("roll", 5),
    "sync is an object": option("sync", {}),
    "sync_interval is 0": option("sync_interval", 0),
    "sync_interval is text": option("sync_interval", "1"),
    "sync_interval is beyond floats": option("sync_interval", 10**400),
    "retention is null": option("retention", None),
    "retention is text": option("retention", "all"),
    "limit_bytes is huge": retention("limit_bytes", 1 << 70),
    "limit_bytes is negative": retention("limit_bytes", -1),
    "max_bytes is a float": retention("max_bytes", 1.5),
    "max_age is text": retention("max_age", "1"),
    "max_age is huge": retention("max_age", 1e300),
    "max_age is negative": retention("max_age", -1),
    "delete_read is a number": retention("delete_read", 1),
    "archive is a number": retention("archive", 1),
    "archive is a path": retention("archive", "somewhere"),
}


@pytest.mark.parametrize("change", METAS.values(), ids=METAS.keys())
def test_a_meta_that_makes_no_sense_is_damage(journal, change):
    """Its checksum may be right."""
    set_meta(journal, change)
    for opener in (jlog.Journal, jlog.Reader, jlog.Writer):
        with pytest.raises(jlog.CorruptJournal) as caught:
            opener(journal)
        assert caught.value.path == str(journal / "journal.meta")
    assert jlog.Journal.repair_at(journal).ok
    with jlog.Reader(journal) as reader:
        assert len(reader.read()) == 21


@pytest.mark.parametrize("text", ['"inode": 1e999', '"inode": NaN', '"inode": -Infinity', '"uuid": "a", "uuid": "b"'])
def test_a_meta_of_bad_json_is_damage(journal, text):
    set_meta(journal, b"{" + text.encode() + b"}")
    with pytest.raises(jlog.CorruptJournal, match=r"journal\.meta"):
        jlog.Journal(journal)


def test_a_key_that_is_said_twice_is_damage(journal):
    body = (journal / "journal.meta").read_bytes().partition(b"\n")[2]
    set_meta(journal, body.replace(b'"inode"', b'"inode": 5, "inode"'))
    with pytest.raises(jlog.CorruptJournal, match="twice"):
        jlog.Journal(journal)


def test_missing_options_have_defaults_that_remove_nothing(journal):
    set_meta(journal, lambda fields: fields.__setitem__("options", {}))
    options = jlog.Journal(journal).options
    assert (options.segment_bytes, options.sync, options.retention.delete_read) == (64 << 20, "none", False)
    assert kinds(journal) == {"returned"}


def test_a_meta_of_a_terabyte_is_not_read(journal):
    os.truncate(journal / "journal.meta", TERABYTE)
    found = outcomes(journal)
    assert found["iterate"][0] == found["info"][0] == "CorruptJournal"
    assert found["repair"][0] == found["append again"][0] == "returned"


# --- Names -------------------------------------------------------------------------------------------------------------

NAMES = ["²²" + "0" * 18, "٣" * 20, "9" * 20, str(NONE), "1" * 19 + " ", "+" + "0" * 19, "1_" + "0" * 18]


@pytest.mark.parametrize("extension", ["seg", "idx"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_a_sequence_is_not_a_part_of_the_journal(journal, name, extension):
    before = list(jlog.Reader(journal))
    (journal / f"{name}.{extension}").write_bytes(b"what is this?")
    assert list(jlog.Reader(journal)) == before
    assert jlog.Journal(journal).verify().ok
    assert kinds(journal) == {"returned"}
    assert (journal / f"{name}.{extension}").exists()


@pytest.mark.parametrize("name", ["begin", "17", "-1", "tab\t", "\udcff", "x" * 201])
@pytest.mark.parametrize("kind", ["subscribers", "checkpoints"])
def test_a_name_that_no_subscriber_can_have_is_none(journal, kind, name):
    try:
        (journal / kind / name).write_bytes(b"")
    except OSError:
        pytest.skip("this file system does not take every byte in a name; set TMPDIR to a directory of one that does")
    assert set(jlog.Journal(journal).subscribers()) == {"billing"}
    assert kinds(journal) == {"returned"}


# --- Files that are not regular -----------------------------------------------------------------------------------------

STRANGE = {
    "directory": os.mkdir,
    "pipe": os.mkfifo,
    "endless device": lambda path: os.symlink("/dev/zero", path),
    "link to nothing": lambda path: os.symlink("nowhere", path),
    "link in a circle": lambda path: os.symlink(path, path),
}
FILES = [
    "journal.meta", "precommit", "bounds", "lock", "subscribers/billing", "checkpoints/noon", f"{0:020d}.seg",
    f"{7:020d}.seg", f"{14:020d}.seg", f"{0:020d}.idx",
]  # fmt: skip


@pytest.mark.parametrize("make_it", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_regular_is_reported_at_once(journal, name, make_it):
    (journal / name).unlink(missing_ok=True)
    make_it(journal / name)
    outcomes(journal)


# --- Huge files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_an_empty_terabyte_takes_no_memory_and_no_time(killed, name):
    os.truncate(killed / name, TERABYTE)
    outcomes(killed)


# --- bounds and positions ----------------------------------------------------------------------------------------------

USUAL = [10**6, 2**62, NONE]
ALL_NUMBERS = [*USUAL, 1, HUGE, NONE - 1]
NUMBERS = [*USUAL, *map(exhaustive.only, ALL_NUMBERS[len(USUAL) :])]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", sorted(hostile.BOUNDS.keys() - {"uuid"}))
def test_bounds_with_any_number_in_them_are_damage_or_are_right(killed, name, number):
    set_bounds(killed, **{name: number})
    outcomes(killed)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", sorted(hostile.BOUNDS.keys() - {"uuid"}))
def test_after_a_power_loss_too(journal, name, number):
    (journal / "precommit").unlink()
    set_bounds(journal, **{name: number})
    outcomes(journal)


def test_a_mark_after_the_end_of_its_file_is_damage(journal):
    """The file is not grown."""
    (journal / "precommit").unlink()
    set_bounds(journal, mark_offset=1 << 40)
    size = hostile.segments(journal)[-1].stat().st_size
    with pytest.raises(jlog.CorruptJournal) as caught:
        jlog.Writer(journal)
    assert caught.value.path == str(hostile.segments(journal)[-1])
    assert hostile.segments(journal)[-1].stat().st_size == size


def test_a_reservation_that_leaves_no_number_refuses_to_go_on(journal):
    set_bounds(journal, reservation_limit=2**62)
    (journal / "precommit").unlink()
    set_bounds(journal, closed_segment=NONE, closed_offset=NONE, closed_sequence=NONE)
    with pytest.raises(jlog.JournalError, match="bounds"):
        jlog.Writer(journal)
    assert len(list(jlog.Reader(journal))) == 21


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["generation", "epoch", "sequence", "moved_us"])
@pytest.mark.parametrize("kind", ["subscribers/billing", "checkpoints/noon"])
def test_a_position_with_any_number_in_it_is_damage_or_is_right(journal, kind, name, number):
    set_position(journal / kind, **{name: number})
    outcomes(journal)


# --- Segments and their indexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 2**32, 2**61, 2**61 + 1, 2**61 + 2, 2**62 + 2, NONE // 24 + 3, NONE])
def test_an_index_that_counts_what_it_has_not_is_built_anew(journal, count):
    index = journal / f"{0:020d}.idx"
    assert index.exists()
    hostile.set_index(index, entry_count=count)
    with jlog.Reader(journal, start=3) as reader:
        assert next(iter(reader)).sequence == 3
    assert kinds(journal) == {"returned"}


@pytest.mark.parametrize("entry", [(NONE, 168, 0), (0, NONE, 0), (0, 0, 0), (5, 168, HUGE), (0, 1 << 62, -HUGE)])
def test_an_index_that_makes_no_sense_loses_no_record(journal, entry):
    index = journal / f"{0:020d}.idx"
    change(index, oracle.INDEX_HEADER.size, struct.pack("<QQq", *(n & NONE for n in entry[:2]), entry[2]))
    hostile.seal(index, 0, index.stat().st_size)
    for start in range(21):
        with jlog.Reader(journal, start=start) as reader:
            assert next(iter(reader)).sequence == start
    assert kinds(journal) == {"returned"}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "name", ["epoch", "first_sequence", "previous_segment", "previous_end_offset", "previous_end_sequence"]
)
def test_any_number_in_a_segment_header_is_damage_or_right(journal, name, number):
    set_segment_header(hostile.segments(journal)[1], **{name: number})
    (journal / "precommit").unlink()
    outcomes(journal)


def test_segments_that_name_each_other_are_not_followed_for_ever(journal):
    first, second, third = hostile.segments(journal)
    set_segment_header(first, previous_segment=14, previous_end_offset=500, previous_end_sequence=0)
    set_segment_header(second, previous_segment=7, previous_end_offset=96, previous_end_sequence=7)
    set_segment_header(third, previous_segment=14, previous_end_offset=96, previous_end_sequence=14)
    (journal / "precommit").unlink()
    assert {"returned", "CorruptJournal"} >= kinds(journal, "iterate", "info", "verify", "append", "repair")


def test_holes_that_overlap_are_counted_once(journal):
    """The numbers between a segment and one before its predecessor cannot all be a hole: it reaches back to the predecessor."""
    for segment in hostile.segments(journal)[1:]:
        set_segment_header(segment, previous_segment=0, previous_end_offset=96, previous_end_sequence=0)
    assert jlog.Journal(journal).gaps() == [(0, 7), (7, 14)]
    assert len(jlog.Journal(journal)) == 7
    outcomes(journal)


# --- Blocks ----------------------------------------------------------------------------------------------------------

FIELDS: list[tuple[str, int]] = [
    *(("record_count", number) for number in (0, 1, 6, 8, 2**32 - 1)),
    *(("raw_bytes", number) for number in (0, 1, 2**31, 2**32 - 1)),
    *(("stored_bytes", number) for number in (0, 1, 1 << 30, 2**32 - 1)),
    *(("first_sequence", number) for number in ALL_NUMBERS),
    *(("durable_end", number) for number in ALL_NUMBERS),
    *((name, number) for name in ("base_time_us", "max_timestamp_us", "clock_us") for number in (-(2**63), HUGE, 0)),
    *(("kind", number) for number in (0, 1, 2, 3, 255)),
    *(("codec", number) for number in (1, 2, 255)),
    *(("flags", number) for number in (0, 1, 2, 0xFFFF)),
    ("raw_crc", 0),
]


# Each field in the first block or in the second, by turns; in both where it is exhaustive.
HEADERS = [
    (name, number, at) if at == turn % 2 else exhaustive.only(name, number, at)
    for turn, (name, number) in enumerate(FIELDS)
    for at in (0, 1)
]


@pytest.mark.parametrize(("name", "number", "at"), HEADERS)
def test_any_number_in_a_block_header_is_damage_or_right(journal, name, number, at):
    block = list(hostile.blocks(hostile.segments(journal)[1]))[at]
    block.put(**{name: number})
    (journal / "precommit").unlink()
    outcomes(journal)


@pytest.mark.parametrize("count", [5, 6, 8, 9])
def test_a_wrong_count_of_records_is_damage_at_the_blocks_end(journal, count):
    segment = hostile.segments(journal)[0]
    block = [found for found in hostile.blocks(segment) if found.fields["record_count"]][-1]
    block.put(record_count=count)
    with jlog.Reader(journal) as reader, pytest.raises(jlog.CorruptJournal) as caught:
        list(reader)
    assert (caught.value.path, caught.value.offset) == (str(segment), block.offset)
    assert not jlog.Journal(journal).verify().ok


def long_record(tag: int, *lengths: int, body: bytes = b"") -> bytes:
    return struct.pack("<IIIII", oracle.TAG_LONG | tag, 0, *lengths) + body


BODIES = {
    "a record that reaches beyond the body": struct.pack("<II", 1000, 0) + b"short",
    "a length of 4 GiB": long_record(0, 2**32 - 1, 2**32 - 1, 2**32 - 1),
    "a null with a length": long_record(oracle.TAG_NULL, 3, 0, 0, body=b"abc"),
    "a key that is not there": long_record(0, 0, 3, 0, body=b"abc"),
    "state without a key": long_record(oracle.TAG_STATE, 1, 0, 0, body=b"v"),
    "state with a time": long_record(oracle.TAG_STATE | oracle.TAG_KEY | oracle.TAG_EXPLICIT, 1, 1, 0, body=b"kv"),
    "state with headers": long_record(oracle.TAG_STATE | oracle.TAG_KEY, 1, 1, 8, body=b"k" + bytes(8) + b"v"),
    "headers that end too early": long_record(0, 0, 0, 4, body=bytes(4)),
    "a header's name beyond the headers": long_record(0, 0, 0, 9, body=struct.pack("<II", 5, 0) + b"n"),
    "a header's value beyond the headers": long_record(0, 0, 0, 9, body=struct.pack("<II", 1, 9) + b"n"),
    "reserved bits": long_record(1, 0, 0, 0),
}


def replace_body(block: Block, body: bytes, count: int) -> None:
    """The last block of the last segment has this body."""
    block.body = body
    block.put(record_count=count, flags=1)
    os.truncate(block.path, block.offset + oracle.BLOCK_HEADER.size + len(body))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_not_a_sequence_of_records_is_damage(journal, body):
    segment = hostile.segments(journal)[-1]
    block = list(hostile.blocks(segment))[-1]
    replace_body(block, body, 1 if len(body) >= 8 else 0)
    end = segment.stat().st_size
    sequence = block.fields["first_sequence"] + (1 if len(body) >= 8 else 0)
    (journal / "precommit").unlink()
    set_bounds(journal, mark_offset=block.offset, mark_sequence=block.fields["first_sequence"],
               closed_segment=14, closed_offset=end, closed_sequence=sequence)  # fmt: skip
    found = outcomes(journal)
    assert found["iterate"][0] == found["values"][0] == found["read"][0] == found["arrow"][0] == "CorruptJournal"
    assert str(segment) in found["iterate"][1]
    assert found["append again"][0] == "returned"


def test_a_worker_meets_a_body_that_is_not_a_sequence_of_records(tmp_path):
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        writer.extend([b"abc"] * 10)
    segment = hostile.segments(path)[-1]
    block = list(hostile.blocks(segment))[-1]
    block.body = struct.pack("<I", 1 << 29) + block.body[4:]  # a value that is longer than the body
    block.put()
    with jlog.Worker(path, "billing") as worker, pytest.raises(jlog.CorruptJournal) as caught:
        worker.take(5, timeout=0)
    assert caught.value.path == str(segment)


def test_a_segment_with_a_senseless_body_is_archived_as_it_is(journal, tmp_path):
    """It is what there is; its times are not known."""
    segment = hostile.segments(journal)[0]
    block = list(hostile.blocks(segment))[-1]
    block.body = struct.pack("<I", 1 << 29) + block.body[4:]  # a value that is longer than the body
    block.put()
    found = segment.read_bytes()
    url = (tmp_path / "archive").as_uri()
    retention = jlog.Retention(max_bytes=1, keep_for_subscribers=False, archive=url)
    with jlog.Writer(journal, retention=retention) as writer:
        writer.roll()
    assert len(jlog.Journal(journal).clean()) == 3
    uuid = jlog.Journal(journal).uuid
    assert (tmp_path / "archive" / uuid / segment.name).read_bytes() == found[: block.end]
    manifest = json.loads((tmp_path / "archive" / uuid / f"{segment.stem}.json").read_text())
    assert (manifest["first_timestamp_us"], manifest["last_timestamp_us"]) == (None, None)


def test_a_header_name_that_is_not_utf_8_is_returned_as_it_is(journal):
    record = long_record(0, 0, 0, 10, body=struct.pack("<II", 2, 0) + b"\xff\xfe")
    segment = hostile.segments(journal)[-1]
    block = list(hostile.blocks(segment))[-1]
    replace_body(block, record, 1)
    (journal / "precommit").unlink()
    set_bounds(journal, closed_offset=segment.stat().st_size, closed_sequence=block.fields["first_sequence"] + 1,
               mark_offset=block.offset, mark_sequence=block.fields["first_sequence"])  # fmt: skip
    assert list(jlog.Reader(journal))[-1].headers == [("\udcff\udcfe", b"")]
    assert kinds(journal) == {"returned"}


@pytest.mark.parametrize("packed_bytes", [300_000, 100])
def test_a_body_that_unpacks_too_large_takes_no_memory(journal, packed_bytes):
    segment = hostile.segments(journal)[-1]
    block = list(hostile.blocks(segment))[-1]
    block.body = b"\x1f\x00\x01\x00" + b"\xff" * packed_bytes + b"\x00\x50zzzzz"
    fields = {"stored_bytes": len(block.body), "raw_crc": 0, "codec": 1}
    change(segment, block.offset, block.encode(raw_bytes=255 * len(block.body), **fields))
    (journal / "precommit").unlink()
    found = outcomes(journal)
    assert found["iterate"][0] == "CorruptJournal"


# --- The control page --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["segment", "offset", "first_sequence", "previous_offset"])
def test_a_slot_with_any_number_in_it_is_not_a_place_or_is_right(killed, name, number):
    for parity in (0, 1):
        set_slot(killed, parity, **{name: number})
    outcomes(killed)


def test_an_open_block_with_a_false_place_is_not_an_end_to_read_from(journal):
    """The page is believed, as after killed writers: its open block begins with a number that nothing leads up to."""
    name_itself(journal / "precommit")
    for parity in (0, 1):
        set_slot(journal, parity, first_sequence=96)
    with jlog.Reader(journal, start="end") as reader:
        assert reader.position == 96
        with pytest.raises(jlog.CorruptJournal, match="precommit"):
            reader.read_backward(3)
    outcomes(journal)


@pytest.mark.parametrize("capacity", [0, 7, 8, 4095, 4097, 1 << 20, 1 << 30, 2**32 - 1])
def test_a_slot_never_lets_records_be_written_after_its_body(killed, capacity):
    for parity in (0, 1):
        set_slot(killed, parity, capacity=capacity)
    outcomes(killed)


@pytest.mark.parametrize("word", [1, 7, 8, 9, 4097, 1 << 30, 2**32 - 1, NONE])
def test_a_word_that_counts_more_than_the_body_has_is_not_a_word(killed, word):
    for parity in (0, 1):
        set_slot(killed, parity, word=word)
    outcomes(killed)


@pytest.mark.parametrize("at", range(64, 400, 8))
@pytest.mark.parametrize("number", [NONE, exhaustive.only(4096)])
def test_any_number_in_the_page_is_survived(killed, at, number):
    """The page has no checksum that could tell."""
    change(killed / "precommit", at, struct.pack("<Q", number))
    outcomes(killed)


@pytest.mark.parametrize("number", [0, 1, NONE, 2**63, 2**62 - 1])
def test_a_generation_that_is_none_is_survived(killed, number):
    change(killed / "precommit", oracle.PAGE_GENERATION_AT, struct.pack("<Q", number))
    for parity in (0, 1):
        set_slot(killed, parity, generation=number)
    outcomes(killed)


# --- Archives ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def archive(journal, in_memory):
    url = (in_memory / "archive").as_uri()
    with jlog.Writer(journal, retention=jlog.Retention(max_bytes=1, keep_for_subscribers=False, archive=url)) as writer:
        writer.roll()
    jlog.Journal(journal).clean()
    kept = in_memory / "archive" / jlog.Journal(journal).uuid
    return url, sorted(kept.glob("*.json"))


MANIFESTS = {
    "deep": b"[" * 1_000_000,
    "a list": b"[]",
    "huge": b"{" + b" " * (8 << 20) + b"}",
    **{
        f"{name} is {value!r}": {name: value}
        for name in ("format", "uuid", "first_sequence", "end_sequence", "size_bytes", "crc32c", "previous_segment",
                     "previous_end_sequence", "max_timestamp_us", "sound")
        for value in (None, -1, 1.5, 1 << 70, True, "x", [], "00" * 15)
    },
}  # fmt: skip


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_an_archives_manifest_is_right_or_damage(archive, change, in_memory):
    url, (manifest, *_) = archive
    content = change if isinstance(change, bytes) else json.dumps({**json.loads(manifest.read_bytes()), **change}).encode()
    manifest.write_bytes(content)
    from jlog.archive import Archive, restore

    for way in (lambda: Archive(url).info(), lambda: list(jlog.Reader(url)), lambda: Archive(url).verify(),
                lambda: Archive(url).find(hostile.SOME_TIME), lambda: restore(url, in_memory / "restored")):  # fmt: skip
        try:
            way()
        except (jlog.JournalError, OSError):
            continue
