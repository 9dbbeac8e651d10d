"""Each kind of damage is repaired: readable records stay under their sequences, and the rest is reported."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import jlog
import oracle
from crash.ruins import closed, left_open, snapshot, unchanged
from crash.tampering import copy, copy_of_killed, flip, open_body_at, quarantined, zero
from processes.units import read_all

RECORDS = 32  # of closed(): eight in each of the segments 0, 8, 16 and 24


@pytest.fixture
def path(tmp_path):
    """A closed journal of four segments, in which damage is done. Its buffer, where the last block would still be found,
    is gone."""
    closed(tmp_path / "made")
    path = copy(tmp_path / "made", tmp_path / "j")
    shutil.rmtree(tmp_path / "made")
    (path / "precommit").unlink()
    return path


def segment(path, number):
    return path / f"{number:020d}.seg"


def blocks(path, number):
    """Returns the blocks of the segment; the first one holds the state."""
    return [block for file, block in jlog.Journal(path).blocks() if Path(file) == segment(path, number)]


def repaired(path, *, lost=()):
    """Repairs it, as a dry run has foreseen; it must be sound then. Returns the report."""
    with unchanged(path):
        foreseen = jlog.Journal.repair_at(path, dry_run=True)
    report = jlog.Journal.repair_at(path)
    assert report.ok
    assert report.lost == list(lost)
    assert (foreseen.damage, foreseen.lost, foreseen.actions) == (report.damage, report.lost, report.actions)
    assert (foreseen.records, foreseen.blocks) == (report.records, report.blocks)
    assert (foreseen.segments, foreseen.skipped) == (report.segments, report.skipped)
    assert jlog.Journal(path).verify().ok
    return report


def sequences(path):
    return [sequence for sequence, _ in read_all(path)]


def without(*gone):
    return [sequence for sequence in range(RECORDS) if sequence not in gone]


def names(things):
    return {os.path.basename(thing.path) for thing in things}


# --- Segments ----------------------------------------------------------------------------------------------------


def test_a_sound_journal_is_left_as_it_is(path):
    with unchanged(path):
        report = repaired(path)
    assert (report.records, report.segments, report.damage, report.actions) == (RECORDS, 4, [], [])


@pytest.mark.parametrize("part", ["header", "body"])
def test_a_damaged_block_becomes_a_gap_and_sequences_stay(path, part):
    before = dict(read_all(path))
    block = blocks(path, 8)[2]
    flip(segment(path, 8), block.offset + (40 if part == "header" else 100), 3)
    first, after = block.first_sequence, block.first_sequence + block.records
    report = repaired(path, lost=[(first, after)])
    assert [(damage.path, damage.offset) for damage in report.damage] == [(str(segment(path, 8)), block.offset)]
    assert report.skipped == [(first, after)]
    assert dict(read_all(path)) == {s: value for s, value in before.items() if not first <= s < after}
    assert report.records == len(jlog.Journal(path)) == RECORDS - block.records


def test_the_damaged_bytes_are_in_quarantine(path):
    block = blocks(path, 8)[2]
    flip(segment(path, 8), block.offset + 80, 0)
    damaged = segment(path, 8).read_bytes()[block.offset : block.offset + 72 + block.stored_bytes]
    repaired(path, lost=[(12, 14)])
    assert quarantined(path) == damaged


def test_a_position_in_what_is_lost_stays_and_goes_on_after_it(path):
    first = blocks(path, 8)[1].first_sequence
    flip(segment(path, 8), blocks(path, 8)[1].offset + 80, 0)
    journal = jlog.Journal(path)
    journal.set_subscriber("billing", first + 2)
    journal.set_checkpoint("nine", first + 1)
    repaired(path, lost=[(8, 12)])
    assert journal.subscribers()["billing"].sequence == first + 2
    assert jlog.Journal(path).subscribers()["billing"].lag == RECORDS - 12
    with jlog.Reader(path, "billing") as reader:
        assert reader.lag == RECORDS - 12
        assert next(iter(reader)).sequence == 12
        reader.rewind("nine")
        assert next(iter(reader)).sequence == 12


def test_a_damaged_segment_header_costs_nothing(path):
    for number in (0, 16):
        flip(segment(path, number), 60, 1)
    report = repaired(path)
    assert names(report.damage) == {segment(path, 0).name, segment(path, 16).name}
    assert sequences(path) == without()
    oracle.check_journal(path)


def test_a_segments_first_state_is_rebuilt_from_the_one_before(path):
    expected = oracle.check_journal(path)
    flip(segment(path, 16), 96 + 72 + 4, 1)
    repaired(path)
    assert sequences(path) == without()
    found = oracle.check_journal(path)
    assert [state_block(contents, 16) for contents in (expected, found)] == [state_block(found, 16)] * 2
    assert state_block(found, 16)


def state_block(contents, number):
    """The state that the segment begins with."""
    block = next(block for block in contents.blocks if block.segment == number)
    return dict(oracle.decode_block(block)[1])


def test_state_of_a_damaged_block_comes_from_the_next_segment(path):
    alone = blocks(path, 8)[4]
    assert (alone.records, alone.has_state) == (0, True)
    expected = jlog.Journal(path).state()
    flip(segment(path, 8), alone.offset + 80, 1)
    repaired(path)
    assert sequences(path) == without()
    assert jlog.Journal(path).state() == expected
    oracle.check_journal(path)  # which follows the state from block to block


def test_the_newest_state_survives_a_damaged_last_segment(path):
    expected = jlog.Journal(path).state()
    flip(segment(path, 24), 96 + 30, 1)
    repaired(path)
    assert jlog.Journal(path).state() == expected


def test_a_missing_segment_becomes_a_hole(path):
    segment(path, 8).unlink()
    report = repaired(path, lost=[(8, 16)])
    assert [(Path(damage.path), damage.records_lost) for damage in report.damage] == [(segment(path, 8), 8)]
    assert sequences(path) == without(*range(8, 16))


def test_two_missing_segments_are_one_hole(path):
    segment(path, 8).unlink()
    segment(path, 16).unlink()
    report = repaired(path, lost=[(8, 24)])
    assert sum(damage.records_lost for damage in report.damage) == 16
    assert sequences(path) == without(*range(8, 24))


def test_the_first_segment_may_be_missing(path):
    segment(path, 0).unlink()
    jlog.Journal(path).set_subscriber("billing", 3)
    repaired(path, lost=[(0, 8)])
    assert sequences(path) == without(*range(8))
    assert jlog.Journal(path).first_sequence == 0
    with jlog.Reader(path, "billing") as reader:
        assert (reader.lag, next(iter(reader)).sequence) == (24, 8)


def test_numbering_goes_on_though_the_last_segment_is_missing(path):
    segment(path, 24).unlink()
    repaired(path, lost=[(24, 32)])
    assert sequences(path) == without(*range(24, 32))
    with jlog.Writer(path) as writer:
        assert writer.append(b"") == RECORDS


def test_no_segment_may_be_left(path):
    for file in path.glob("*.seg"):
        file.unlink()
    repaired(path, lost=[(0, 32)])
    assert sequences(path) == []
    with jlog.Writer(path) as writer:
        assert writer.append(b"") == RECORDS


@pytest.mark.parametrize("damage", [lambda file: os.truncate(file, 0), zero], ids=["empty", "zeros"])
@pytest.mark.parametrize("number", [0, 8, 24])
def test_a_segment_of_which_nothing_is_left_becomes_a_hole(path, number, damage):
    damage(segment(path, number))
    repaired(path, lost=[(number, number + 8)])
    assert sequences(path) == without(*range(number, number + 8))


@pytest.mark.parametrize("number", [0, 8, 24])
def test_a_segment_that_is_cut_off_keeps_what_stands_before(path, number):
    block = blocks(path, number)[2]
    os.truncate(segment(path, number), block.offset + 20)
    repaired(path, lost=[(block.first_sequence, number + 8)])
    assert sequences(path) == without(*range(block.first_sequence, number + 8))


def test_zeros_in_the_middle_of_a_segment_cost_what_stood_there(path):
    second, fourth = blocks(path, 16)[1], blocks(path, 16)[3]
    zero(segment(path, 16), second.offset, fourth.offset - second.offset)
    repaired(path, lost=[(second.first_sequence, fourth.first_sequence)])
    assert sequences(path) == without(*range(second.first_sequence, fourth.first_sequence))


def test_compressed_blocks_stay_compressed(tmp_path):
    path = tmp_path / "j"
    with jlog.Writer(path, compression="lz4") as writer:
        for _ in range(5):
            writer.extend([b"again and again and again and again and again"] * 20)
            writer.flush()
    flip(segment(path, 0), blocks(path, 0)[2].offset + 80, 1)
    codecs = [block.codec for block in blocks(path, 0)]
    repaired(path, lost=[(20, 40)])
    assert [block.codec for _, block in jlog.Journal(path).blocks() if block.records] == [codecs[1]] * 4
    assert codecs[1] == 1
    assert len(read_all(path)) == 80


def test_records_removed_by_retention_do_not_come_back(path):
    kept = segment(path, 0).read_bytes()
    with jlog.Writer(path, retention=jlog.Retention()):
        jlog.Journal(path).set_subscriber("billing", 10)
        jlog.Journal(path).remove_checkpoint("nine")
    assert jlog.Journal(path).first_sequence == 8
    segment(path, 0).write_bytes(kept)  # a power loss may bring it back
    flip(segment(path, 16), 60, 1)
    repaired(path)
    assert sequences(path) == list(range(8, RECORDS))


# --- Its end, and the pre-commit buffer --------------------------------------------------------------------------


@pytest.fixture
def killed(tmp_path):
    """Its writer was killed in this boot, and left a record in the buffer."""
    writer = left_open(tmp_path / "made")
    path = copy_of_killed(tmp_path / "made", tmp_path / "j")
    writer.close()
    shutil.rmtree(tmp_path / "made")
    return path


def test_records_in_the_buffer_survive_a_repair_before_them(killed):
    before = read_all(killed)
    last = blocks(killed, 8)[-1]
    flip(segment(killed, 8), last.offset + 75, 1)
    first = last.first_sequence
    report = jlog.Journal(killed).repair()
    assert report.ok
    assert report.lost == ([(first, first + last.records)] if last.records else [])
    assert read_all(killed) == [(sequence, value) for sequence, value in before if not first <= sequence < first + last.records]
    with jlog.Writer(killed) as writer:
        assert writer.append(b"") == before[-1][0] + 1


def test_a_block_that_its_segment_lost_is_found_in_the_buffer(tmp_path):
    closed(tmp_path / "made")
    path = copy(tmp_path / "made", tmp_path / "j")
    before = read_all(path)
    last = blocks(path, 24)[-1]
    zero(segment(path, 24), last.offset)
    assert repaired(path).records == len(before)
    assert read_all(path) == before


def test_a_damaged_buffer_costs_what_was_in_it_and_nothing_else(killed):
    before = read_all(killed)
    closed_records = jlog.Journal(killed).segments()[-1]
    flip(killed / "precommit", open_body_at(killed) + 12, 1)
    assert not jlog.Journal(killed).verify().ok
    report = jlog.Journal(killed).repair()
    assert report.ok
    assert "precommit" in names(report.damage)
    assert closed_records.end_sequence == len(before)
    assert read_all(killed) == before[:-1]
    with jlog.Writer(killed) as writer:
        assert writer.append(b"") > before[-1][0]


@pytest.mark.parametrize("size", [0, 100, 900, 4096, 5000, 8192, 9000])
def test_a_cut_off_buffer_keeps_nobody_from_the_segments(killed, size):
    before = read_all(killed)
    os.truncate(killed / "precommit", size)
    assert jlog.Journal(killed).repair().ok
    assert read_all(killed)[: len(before) - 1] == before[:-1]


def test_a_living_reader_sees_what_is_written_after_the_repair(killed):
    """The buffer's file is never replaced: a process that has it open would go on with the old one."""
    flip(segment(killed, 0), 50, 1)
    with jlog.Reader(killed, start="end") as reader:
        assert list(reader) == []
        assert jlog.Journal(killed).repair().ok
        with jlog.Writer(killed) as writer:
            writer.append(b"after")
            assert [record.value for record in reader] == [b"after"]


# --- Small files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 4096])
@pytest.mark.parametrize("name", ["bounds", "subscribers/billing", "checkpoints/nine"])
def test_one_damaged_copy_is_made_anew_from_the_other(path, name, at):
    before = snapshot(path)
    flip(path / name, at + 45, 2)
    assert names(repaired(path).actions) == {os.path.basename(name)}
    assert snapshot(path) == before


@pytest.mark.parametrize("name", ["subscribers/billing", "checkpoints/nine"])
def test_an_unreadable_position_is_set_to_the_first_record(path, name):
    """The report of the repair says so."""
    zero(path / name)
    report = repaired(path)
    assert names(report.damage) == names(report.actions) == {os.path.basename(name)}
    assert "set to 0" in report.actions[0].text
    found = {**jlog.Journal(path).subscribers(), **jlog.Journal(path).checkpoints()}
    assert found[os.path.basename(name)].sequence == 0


@pytest.mark.parametrize("damage", [zero, os.unlink], ids=["damaged", "missing"])
def test_without_bounds_writing_goes_on_under_a_new_epoch(path, damage):
    """It goes on after all known sequences."""
    damage(path / "bounds")
    before = oracle.read_meta(str(path))["epochs"]
    report = repaired(path)
    assert names(report.damage) == {"bounds"}
    assert sequences(path) == without()
    epochs = oracle.check_journal(path).epochs
    assert [epoch["epoch"] for epoch in before] == [epoch for epoch, _ in epochs[:-1]]
    assert epochs[-1][1] == RECORDS
    with jlog.Writer(path) as writer:
        assert writer.append(b"") == RECORDS
        writer.roll()
    assert oracle.check_journal(path).segments[-1].epoch == epochs[-1][0]


def test_a_position_is_set_in_the_epoch_of_its_repair(path):
    os.unlink(path / "bounds")
    zero(path / "subscribers" / "billing")
    repaired(path)
    found = oracle.check_journal(path)
    assert found.subscribers["billing"].epoch == found.epochs[-1][0]


@pytest.mark.parametrize("damage", [lambda file: flip(file, 60, 1), os.unlink, zero], ids=["flip", "missing", "zeros"])
def test_journal_meta_is_made_anew_and_nothing_is_removed_then(path, damage):
    uuid = jlog.Journal(path).uuid
    damage(path / "journal.meta")
    with pytest.raises(jlog.JournalError):
        jlog.Journal(path)
    report = repaired(path)
    assert names(report.damage) == {"journal.meta"}
    journal = jlog.Journal(path)
    assert journal.uuid == uuid
    assert journal.options.retention.delete_read is False
    assert sequences(path) == without()
    oracle.check_journal(path)
    with jlog.Writer(path) as writer:
        assert writer.append(b"") == RECORDS


def test_files_of_no_known_journal_are_an_error_and_stay(path):
    os.unlink(path / "journal.meta")
    for file in [*path.glob("*.seg"), *path.glob("*/*")]:
        zero(file, 0, 100)
        if file.parent != path:
            zero(file)
    zero(path / "bounds")
    with unchanged(path), pytest.raises(jlog.CorruptJournal, match="restore"):
        jlog.Journal.repair_at(path)


def test_there_must_be_a_journal(tmp_path):
    for nothing in (tmp_path, tmp_path / "missing"):
        with pytest.raises(jlog.JournalNotFound):
            jlog.Journal.repair_at(nothing)


def test_a_wrong_index_is_made_anew_and_a_missing_one_is_fine(path):
    right = (path / f"{8:020d}.idx").read_bytes()
    flip(path / f"{8:020d}.idx", 60, 1)
    (path / f"{0:020d}.idx").unlink()
    report = repaired(path)
    assert report.damage == []
    assert names(report.actions) == {f"{8:020d}.idx"}
    assert (path / f"{8:020d}.idx").read_bytes() == right


def test_files_that_somebody_was_killed_over_are_removed(path):
    left = [path / "next.0.7", path / "next.repair", path / ".journal.meta", path / ".ids", path / "subscribers" / ".17.new"]
    for file in left:
        file.write_bytes(b"half")
    assert names(repaired(path).actions) == {file.name for file in left}
    assert not any(file.exists() for file in left)


def test_folders_of_positions_that_are_missing_are_made_anew(path):
    shutil.rmtree(path / "subscribers")
    shutil.rmtree(path / "checkpoints")
    repaired(path)
    jlog.Journal(path).add_subscriber("billing")


# --- Other processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_repaired_under_a_writer(path, spawn, dry_run):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    with pytest.raises(jlog.JournalLocked, match="close its writers"):
        jlog.Journal(path).repair(dry_run=dry_run)
    child.call("close", "w")
    with jlog.Writer(path), pytest.raises(jlog.JournalLocked):
        jlog.Journal(path).repair(dry_run=dry_run)
    assert jlog.Journal(path).repair(dry_run=dry_run).ok


def test_nothing_is_moved_under_a_subscriber(path, spawn):
    child = spawn()
    child.call("subscribe", "billing", str(path))
    flip(segment(path, 8), 60, 1)
    with unchanged(path), pytest.raises(jlog.SubscriberBusy):
        jlog.Journal(path).repair()
    assert jlog.Journal(path).repair(dry_run=True).actions
    child.call("close", "billing")
    assert jlog.Journal(path).repair().ok


def test_a_newer_version_is_not_repaired(path):
    content = bytearray(segment(path, 8).read_bytes())
    content[8] = 3
    content[12:16] = oracle.structure_crc(bytes(content[:96])).to_bytes(4, "little")
    segment(path, 8).write_bytes(content)
    with unchanged(path), pytest.raises(jlog.UnsupportedFormat):
        jlog.Journal(path).repair()
    content[8] = 2
    content[12:16] = oracle.structure_crc(bytes(content[:96])).to_bytes(4, "little")
    segment(path, 8).write_bytes(content)


def test_numbers_of_an_old_gap_are_not_reported_as_lost(tmp_path):
    with jlog.Writer(tmp_path / "made") as writer:
        writer.append(b"before")
        writer.sync()
        path = copy(tmp_path / "made", tmp_path / "j")
    with jlog.Writer(path) as writer:
        second = writer.append(b"after the hole")
        writer.flush()
        third = writer.append(b"last")
    (path / "precommit").unlink()
    os.truncate(segment(path, second), blocks(path, second)[-1].offset + 5)
    report = repaired(path, lost=[(third, third + 1)])
    assert report.skipped == [(1, second), (third, third + 1)]
