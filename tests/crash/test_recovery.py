"""A power loss is a control page of another boot: then what is in the files counts. Recovery may be killed anywhere."""

import os
from itertools import pairwise

import pytest

import jlog
import oracle
from crash.tampering import another_boot, change, copy, flip, lose_unsynced, newest_segment, open_body_at, quarantined, zero
from jlog._core.segments.segment import SegmentFile
from jlog.storage.attaching import MetaPolicy
from processes.units import check_units, read_all, values_of

pytestmark = pytest.mark.usefixtures("failpoints")

OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
STEPS = ["begun", "written_again", "quarantined", "cut", "segment_written", "segment_created", "marked"]
CALLS = ["file.write", "file.sync", "file.sync_directory", "file.read"]


@pytest.fixture
def killed(spawn, tmp_path):
    """A writer that was killed, with synced, flushed and only buffered records, in several segments."""
    child = spawn()
    child.call("open_writer", "w", str(tmp_path / "j"), OPTIONS)
    child.call("work", "w", 12)
    child.call("sync", "w")
    child.call("append", "w", 3, 100)
    child.call("flush", "w")
    child.call("append", "w", 4, 100)
    child.kill()
    return child


@pytest.fixture
def closed(spawn, tmp_path):
    child = spawn()
    child.call("open_writer", "w", str(tmp_path / "j"), OPTIONS)
    child.call("work", "w", 12)
    child.call("close", "w")
    return child


def blocks_of(path, segment):
    """(offset, end, first sequence, records) of each block of a segment file."""
    journal = jlog.Journal(path)
    file = SegmentFile(str(path), int(segment.stem), bytes.fromhex(journal.uuid))
    return [(b.offset, b.offset + 72 + b.stored_bytes, b.first_sequence, b.records) for b in file.blocks(with_body=True)]


# --- What is there afterwards ------------------------------------------------------------------------------------


def test_after_a_power_loss_numbering_goes_on_after_a_gap(killed, tmp_path):
    """All that was written is there, and the gap is stated."""
    path = tmp_path / "j"
    before = check_units(path, killed.acknowledged)
    end = len(before)
    another_boot(path)
    assert check_units(path, killed.acknowledged) == before  # read without recovery
    with jlog.Writer(path) as writer:
        sequence = writer.append(values_of("after", 0)[0])
    assert sequence > end
    assert jlog.Journal(path).gaps() == [(end, sequence)]
    assert check_units(path, killed.acknowledged)[:end] == before
    assert len(jlog.Journal(path)) == end + 1
    assert not quarantined(path)


def test_after_a_clean_close_a_power_loss_leaves_no_hole(closed, tmp_path):
    path = tmp_path / "j"
    before = check_units(path, closed.acknowledged)
    another_boot(path)
    with jlog.Writer(path) as writer:
        assert writer.append(values_of("after", 0)[0]) == len(before)
    assert not jlog.Journal(path).gaps()
    check_units(path, closed.acknowledged)


def test_a_journal_reopened_after_a_clean_close_has_a_gap(closed, spawn, tmp_path):
    """The note of the close is taken away by the next opening, durably."""
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "x", str(path), {})
    child.kill()
    another_boot(path)
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert len(jlog.Journal(path).gaps()) == 1
    check_units(path, closed.acknowledged)


def test_lag_does_not_count_the_hole_and_readers_step_over_it(killed, spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    with jlog.Reader(path, "billing") as reader:
        assert list(reader)
        reader.commit()
        end = reader.position
    child.call("open_writer", "w", str(path), {})
    child.kill()
    another_boot(path)
    with jlog.Writer(path) as writer:
        first = writer.extend([values_of("after", i)[0] for i in range(5)])
    with jlog.Reader(path, "billing") as reader:
        assert reader.committed == end
        assert reader.lag == 5
        assert [record.sequence for record in reader] == [first + i for i in range(5)]
        assert reader.lag == 0
        assert [record.sequence for record in reader.read_backward(7)] == [
            *range(first + 4, first - 1, -1),
            end - 1,
            end - 2,
        ]
    for start in (end, end + 1, first - 1, first):
        with jlog.Reader(path, start=start) as reader:
            assert reader.lag == 5
            assert next(iter(reader)).sequence == first
    with jlog.Reader(path, start="begin") as reader:
        assert reader.lag == len(jlog.Journal(path)) == len(list(reader))
    assert jlog.Journal(path).subscribers()["billing"].lag == 5


def test_the_state_survives_a_power_loss_with_its_blocks(killed, tmp_path):
    path = tmp_path / "j"
    state = jlog.Journal(path).state()
    assert state
    another_boot(path)
    assert jlog.Journal(path).state() == state
    with jlog.Writer(path) as writer:
        writer.extend([b"x"], state={b"more": b"1"})
    assert jlog.Journal(path).state() == {**state, b"more": b"1"}


def killed_behind_a_write_out(spawn, path, compression="none", again=None):
    """The first of two processes wrote its open block out and was killed before it switched. The second one appended to that
    block, until it was killed at the point `again`, or by a signal. Returns what both have acknowledged."""
    first, second = spawn(), spawn()
    first.call("open_writer", "w", str(path), {**OPTIONS, "compression": compression})
    if compression == "none":
        second.call("open_writer", "x", str(path), {})
    first.call("append", "w", 3, 300)
    first.call("arm", "close.written=kill@1")
    first.dies("flush", "w")
    if compression != "none":  # a living one would find it closed
        second.call("open_writer", "x", str(path), {**OPTIONS, "compression": compression})
    second.call("append", "x", 5, 100)
    if again:
        second.call("arm", f"{again}=kill@1")
        second.dies("append", "x", 100, 100)
    second.kill()
    found = jlog.Journal(path)
    place = oracle.read_page(str(path), bytes.fromhex(found.uuid)).slot
    if not again:
        block, _ = SegmentFile(str(path), place.segment, bytes.fromhex(found.uuid)).block_at(place.offset)
        assert (block.first_sequence, block.records) == (place.first_sequence, 3)
    return first.acknowledged + second.acknowledged


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("made", ["in place", "copied", "under another boot id"])
def test_an_append_after_a_killed_write_back_is_there(spawn, tmp_path, compression, made):
    """A whole block stands at its place, and the open block has more records since."""
    path = tmp_path / "j"
    units = killed_behind_a_write_out(spawn, path, compression)
    if made == "copied":
        path = copy(path, tmp_path / "copy")
    elif made == "under another boot id":
        another_boot(path)
    before = check_units(path, units)
    assert len(before) == 8
    with jlog.Writer(path) as writer:
        after = writer.append(values_of("after", 0)[0])
    assert check_units(path, units)[:-1] == before
    assert after == 8 if made == "in place" else after > 8
    assert not quarantined(path)


@pytest.mark.parametrize(("point", "visit"), [("recovery.cut", 1), *((call, n) for call in CALLS for n in (1, 2))])
def test_a_longer_body_replaces_its_block_after_any_kills(spawn, tmp_path, point, visit):
    path = tmp_path / "j"
    units = killed_behind_a_write_out(spawn, path)
    another_boot(path)
    for _ in range(3):
        opener = spawn(f"{point}=kill@{visit}")
        if not opener.may_die("open_writer", "opener", str(path), {}):
            break
        assert len(check_units(path, units)) == 8
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert len(check_units(path, units)) == 9


def test_immutable_and_open_block_survive_a_killed_write_back(spawn, tmp_path):
    path = tmp_path / "j"
    units = killed_behind_a_write_out(spawn, path, again="close.before_write")
    before = check_units(path, units)
    assert oracle.check_journal(path).immutable_block is not None
    copied = copy(path, tmp_path / "copy")
    another_boot(path)
    for found in (path, copied):
        assert check_units(found, units) == before
        with jlog.Writer(found) as writer:
            assert writer.append(values_of("after", 0)[0]) >= len(before)
        assert check_units(found, units)[:-1] == before


def test_a_block_that_its_places_body_does_not_begin_with_stays(spawn, tmp_path):
    path = tmp_path / "j"
    killed_behind_a_write_out(spawn, path)
    another_boot(path)
    page = oracle.read_page(str(path), bytes.fromhex(jlog.Journal(path).uuid))
    flip(path / "precommit", open_body_at(path) + 100)  # a body that is whole, and another
    body = (path / "precommit").read_bytes()[open_body_at(path) :][: page.slot.used]
    word = oracle.crc32c(body) << 32 | len(body)
    change(path / "precommit", 512 + 64 * (page.generation & 1) + 48, word.to_bytes(8, "little"))
    before = read_all(path)
    assert [sequence for sequence, _ in before] == [0, 1, 2]
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert read_all(path)[:-1] == before


def test_power_losses_one_after_the_other_leave_a_hole_each(killed, spawn, tmp_path):
    path, units = tmp_path / "j", list(killed.acknowledged)
    for turn in range(4):
        another_boot(path)
        child = spawn()
        child.call("open_writer", f"turn{turn}", str(path), {})
        child.call("work", f"turn{turn}", 4)
        child.kill()
        units += child.acknowledged
        check_units(path, units)
    assert len(jlog.Journal(path).gaps()) == 4


def test_a_reader_lives_through_a_recovery(killed, spawn, tmp_path):
    path, reader = tmp_path / "j", spawn()
    before = len(read_all(path))
    end = values_of("end", 0)[0]
    another_boot(path)
    reader.start("follow", str(path), end.decode())
    for _ in range(before):
        reader.wait_for("record")
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
        writer.append(end)
    reader.result()
    assert reader.records == read_all(path)


def test_a_copy_is_recovered_like_a_journal_after_a_power_loss(killed, tmp_path):
    path = copy(tmp_path / "j", tmp_path / "copy")
    before = check_units(path, killed.acknowledged)
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert check_units(path, killed.acknowledged)[: len(before)] == before


@pytest.mark.damage
def test_damage_that_hides_the_end_is_told_each_time(tmp_path):
    with jlog.Writer(tmp_path / "j") as writer:
        writer.append(b"value")
    with jlog.Reader(tmp_path / "j") as reader:
        another_boot(tmp_path / "j")
        zero(newest_segment(tmp_path / "j"), 0, 96)
        for _ in range(2):
            with pytest.raises(jlog.CorruptJournal):
                list(reader)


@pytest.mark.parametrize("capacity", [4 << 10, 1 << 20])
def test_a_copied_journal_has_an_epoch_of_its_own(tmp_path, capacity):
    """A later change of the buffer's size begins no other one."""
    with jlog.Writer(tmp_path / "j", precommit=4 << 10) as writer:
        writer.append(b"before")
    before = oracle.read_journal(tmp_path / "j").epochs
    path = copy(tmp_path / "j", tmp_path / "copy")
    with jlog.Writer(path, precommit=capacity) as writer:
        first = writer.append(b"after")
    assert oracle.read_journal(path).epochs[:-1] == before
    assert oracle.read_journal(path).epochs[-1][1] == first
    jlog.Writer(path, precommit=2 << 20).close()
    assert len(oracle.read_journal(path).epochs) == 2


def test_a_writer_uses_the_epoch_that_another_began_in_a_copy(spawn, tmp_path, monkeypatch):
    """Another process opens the copy first, after this one has read journal.meta and before it has the open lock."""
    with jlog.Writer(tmp_path / "j") as writer:
        writer.append(b"before")
    path, others, read = copy(tmp_path / "j", tmp_path / "copy"), [spawn()], MetaPolicy.read

    def read_too_early(policy, path):
        found = read(policy, path)
        if others:
            others.pop().call("open_writer", "first", str(path), {})
        return found

    monkeypatch.setattr(MetaPolicy, "read", read_too_early)
    with jlog.Writer(path) as writer:
        writer.append(b"after")
        writer.roll()
        journal = oracle.read_journal(path)
        assert len(journal.epochs) == 2
        assert journal.segments[-1].epoch == journal.epochs[-1][0]


# --- What the disk has lost --------------------------------------------------------------------------------------


def test_an_unsynced_tail_is_cut_to_whole_blocks(spawn, tmp_path):
    """The rest goes to quarantine. It is cut at the boundaries of its blocks, beside them and in the middle."""
    template, child = tmp_path / "template", spawn()
    child.call("open_writer", "w", str(template), {"precommit": 4 << 10, "segment_bytes": 64 << 10})
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    for _ in range(4):
        child.call("append", "w", 3, 100)
        child.call("extend", "w", 1, 2, 100, True)
    child.call("append", "w", 2, 100)
    child.kill()
    blocks = blocks_of(template, newest_segment(template))
    synced, tail = blocks[1], blocks[2:]
    assert len(tail) == 8
    everything = read_all(template)
    cuts = {cut for begin, end, *_ in tail for cut in (begin, begin + 1, begin + 71, begin + 72, (begin + end) // 2, end - 1)}
    for cut in sorted(cuts | {tail[-1][1]}):
        path = copy(template, tmp_path / "j")
        another_boot(path)
        os.truncate(newest_segment(path), cut)
        kept = synced[2] + synced[3] + sum(records for _, end, _, records in tail if end <= cut)
        whole_body = cut == tail[-1][1]
        wanted = everything if whole_body else everything[:kept]
        assert read_all(path) == wanted, cut
        with jlog.Writer(path) as writer:
            after = writer.append(values_of("after", 0)[0])
        assert after > len(everything)
        assert check_units(path, child.acknowledged, lost=len(everything) - kept)[:-1] == wanted, cut
        ends = {synced[1], *(end for _, end, *_ in tail)}
        assert bool(quarantined(path)) == (cut not in ends), cut
    synced_end = synced[2] + synced[3]
    assert synced_end == 5


def test_blocks_after_a_torn_one_go_to_quarantine(spawn, tmp_path):
    """The journal ends at the torn one. A sector of it is on the disk or not."""
    template, child = tmp_path / "template", spawn()
    child.call("open_writer", "w", str(template), {"precommit": 4 << 10, "segment_bytes": 64 << 10})
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    for _ in range(5):
        child.call("append", "w", 3, 500)
        child.call("flush", "w")
    child.kill()
    everything = read_all(template)
    # Not the last two: they are still in the buffer, and come back from there.
    for begin, end, first, _ in blocks_of(template, newest_segment(template))[2:-2]:
        second, last = (begin | 511) + 1, (end - 1) & ~511
        for place, size in ((begin, second - begin), (second, 512), (last, end - last)):
            path = copy(template, tmp_path / "j")
            another_boot(path)
            zero(newest_segment(path), place, size)
            assert read_all(path) == everything[:first]
            with jlog.Writer(path) as writer:
                writer.append(values_of("after", 0)[0])
            assert check_units(path, child.acknowledged, lost=20)[:-1] == everything[:first]
            assert quarantined(path)


def test_a_reader_finds_its_end_while_recovery_moves_segments(spawn, tmp_path):
    """It has just listed them when they go."""
    path, child, reader = tmp_path / "j", spawn(), spawn()
    child.call("open_writer", "w", str(path), OPTIONS)
    child.call("append", "w", 400, 100)
    child.kill()
    another_boot(path)
    segments = sorted(path.glob("*.seg"))
    offset, _, first, _ = blocks_of(path, segments[2])[-1]
    zero(segments[2], offset, 4096)
    reader.call("arm", "end.listed=stop@1")
    reader.start("sequences", str(path))
    reader.is_stopped()
    with jlog.Writer(path) as writer:
        assert quarantined(path)
        after = writer.append(b"after the recovery")
        reader.continues()
        assert reader.result() == [*range(first), after]


def test_later_segments_that_the_disk_lost_are_cut_too(spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), OPTIONS)
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    child.call("append", "w", 300, 100)
    child.kill()
    another_boot(path)
    segments = sorted(path.glob("*.seg"))
    assert len(segments) > 4
    zero(segments[2])
    kept = int(segments[2].stem)
    everything = read_all(path)
    assert [sequence for sequence, _ in everything] == list(range(kept))
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert check_units(path, child.acknowledged, lost=305 - kept)[:-1] == everything
    assert len(list((path / "quarantine").iterdir())) == len(segments) - 2


@pytest.mark.damage
@pytest.mark.parametrize("place", [75, 130])
def test_damage_before_the_mark_is_reported_and_never_cut(spawn, tmp_path, place):
    """It was synced: a power loss cannot have taken it."""
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    for _ in range(4):
        child.call("append", "w", 5, 100)
        child.call("sync", "w")
    child.kill()
    another_boot(path)
    begin = blocks_of(path, newest_segment(path))[2][0]
    zero(newest_segment(path), begin + place, 20)
    with jlog.Writer(path) as writer:
        after = writer.append(values_of("after", 0)[0])
    with jlog.Reader(path) as reader:
        records = []
        with pytest.raises(jlog.CorruptJournal) as caught:
            records.extend(record.sequence for record in reader)
        assert (caught.value.path, caught.value.offset) == (str(newest_of(path, 0)), begin)
        lost = reader.skip_damage()
        assert (lost.first_sequence, lost.records_lost) == (5, 5)
        assert [record.sequence for record in reader] == [*range(10, 20), after]
    assert not jlog.Journal(path).verify().ok
    assert not quarantined(path)


@pytest.mark.damage
def test_a_damaged_header_that_hides_the_state_stops_all_writers(spawn, tmp_path):
    """It lies before the synced mark; nothing is cut."""
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    for _ in range(4):
        child.call("append", "w", 5, 100)
        child.call("sync", "w")
    child.kill()
    another_boot(path)
    begin = blocks_of(path, newest_segment(path))[2][0]
    zero(newest_segment(path), begin, 72)
    with pytest.raises(jlog.CorruptJournal):
        jlog.Writer(path)
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.CorruptJournal):
            list(reader)
        reader.skip_damage()
        assert [record.sequence for record in reader] == list(range(10, 20))
    assert not quarantined(path)


def newest_of(path, segment):
    return path / f"{segment:020d}.seg"


@pytest.mark.damage
def test_damage_that_a_later_block_vouches_for_is_never_cut(spawn, tmp_path):
    """An old mark, as a power loss may leave it: the blocks themselves say what was synced."""
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    child.call("append", "w", 5, 100)
    child.call("sync", "w")
    old = (path / "bounds").read_bytes()
    for _ in range(3):
        child.call("append", "w", 5, 100)
        child.call("sync", "w")
    child.call("append", "w", 5, 100)
    child.call("flush", "w")
    child.kill()
    another_boot(path)
    (path / "bounds").write_bytes(old)
    zero(newest_segment(path), blocks_of(path, newest_segment(path))[2][0] + 80, 20)
    with jlog.Writer(path) as writer:
        after = writer.append(values_of("after", 0)[0])
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.CorruptJournal):
            list(reader)
        reader.skip_damage()
        assert [record.sequence for record in reader] == [*range(10, 25), after]
    assert not quarantined(path)


# --- The small files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["zeroed", "zeroed page", "deleted", "empty", "cut off", "of another journal"])
def test_a_journal_without_precommit_has_all_flushed_records(killed, spawn, tmp_path, how):
    path = tmp_path / "j"
    flushed = len(check_units(path, killed.acknowledged)) - 4
    precommit = path / "precommit"
    if how == "zeroed":
        zero(precommit)
    elif how == "zeroed page":
        zero(precommit, 0, 4096)
    elif how == "deleted":
        precommit.unlink()
    elif how == "empty":
        precommit.write_bytes(b"")
    elif how == "cut off":
        precommit.write_bytes(precommit.read_bytes()[:300])
    else:
        with jlog.Writer(tmp_path / "other", precommit=4 << 10) as writer:
            writer.append(values_of("other", 0)[0])
        precommit.write_bytes((tmp_path / "other" / "precommit").read_bytes())
    before = check_units(path, killed.acknowledged, lost=4)
    assert len(before) == flushed
    with jlog.Writer(path) as writer:
        assert writer.append(values_of("after", 0)[0]) > flushed + 4
    assert check_units(path, killed.acknowledged, lost=4)[:-1] == before


def test_a_cut_off_precommit_is_damage_until_a_writer_recovers(killed, tmp_path):
    path = tmp_path / "j"
    flushed = len(read_all(path)) - 4
    content = (path / "precommit").read_bytes()
    (path / "precommit").write_bytes(content[: open_body_at(path) + 4])
    with pytest.raises(jlog.CorruptJournal):
        read_all(path)
    with jlog.Writer(path) as writer:
        writer.append(values_of("after", 0)[0])
    assert len(check_units(path, killed.acknowledged, lost=4)) == flushed + 1


def test_a_deleted_precommit_is_made_again_without_a_gap(closed, tmp_path):
    """The journal was closed."""
    path = tmp_path / "j"
    before = len(read_all(path))
    (path / "precommit").unlink()
    assert len(check_units(path, closed.acknowledged)) == before
    with jlog.Writer(path) as writer:
        assert writer.append(values_of("after", 0)[0]) == before
    check_units(path, closed.acknowledged)


def test_indexes_that_are_missing_are_built_anew(closed, tmp_path):
    path = tmp_path / "j"
    indexes = list(path.glob("*.idx"))
    assert len(indexes) > 2
    for index in indexes:
        index.unlink()
    records = check_units(path, closed.acknowledged)
    for sequence in range(0, len(records), 7):
        assert read_all(path, sequence) == records[sequence:]


@pytest.mark.damage
@pytest.mark.parametrize("how", ["another segment's", "entries moved", "empty", "zeroed", "cut off"])
def test_an_index_that_is_wrong_never_leads_to_a_wrong_record(spawn, tmp_path, how):
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10, "segment_bytes": 512 << 10})
    child.call("append", "w", 1200, 1000)
    child.call("close", "w")
    records = read_all(path)
    first, second = sorted(path.glob("*.idx"))[:2]
    content = first.read_bytes()
    if how == "another segment's":
        first.write_bytes(second.read_bytes())
    elif how == "entries moved":
        # Right by its checksum: each entry names the block of the next one.
        entries = [content[at : at + 24] for at in range(48, len(content), 24)]
        moved = [a[:8] + b[8:] for a, b in pairwise(entries[1:])]
        first.write_bytes(with_crc(content[:48] + b"".join([entries[0], *moved, entries[-1]])))
    elif how == "empty":
        first.write_bytes(b"")
    elif how == "zeroed":
        zero(first)
    else:
        first.write_bytes(content[:-10])
    for sequence in range(0, len(records), 13):
        assert read_all(path, sequence) == records[sequence:]
    for sequence in (0, 100, 300, 500):
        time = records_time(path, sequence)
        assert jlog.Journal(path).find(time) <= sequence


def with_crc(structure):
    import google_crc32c

    crc = google_crc32c.value(structure[:12] + bytes(4) + structure[16:])
    return structure[:12] + crc.to_bytes(4, "little") + structure[16:]


def records_time(path, sequence):
    with jlog.Reader(path, start=sequence) as reader:
        return next(iter(reader)).timestamp


def test_one_damaged_copy_of_bounds_is_made_good_by_the_other(killed, tmp_path):
    path = tmp_path / "j"
    for at in (0, 4096):
        zero(path / "bounds", at, 128)
        with jlog.Writer(path) as writer:
            writer.append(values_of(f"after{at}", 0)[0])
            writer.sync()
    check_units(path, killed.acknowledged)


@pytest.mark.damage
def test_without_valid_bounds_nobody_appends(closed, tmp_path):
    """The error names the file."""
    path = tmp_path / "j"
    zero(path / "bounds")
    with pytest.raises(jlog.CorruptJournal, match="bounds"):
        jlog.Writer(path)


# --- Killed on the way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["killed", "closed"])
@pytest.mark.parametrize(
    ("point", "visit"),
    [*((f"recovery.{step}", 1) for step in STEPS), *((call, n) for call in CALLS for n in (1, 2, 3, 5))],
)
def test_a_recovery_killed_anywhere_is_done_again(request, spawn, tmp_path, journal, point, visit):
    path, child = tmp_path / "j", request.getfixturevalue(journal)
    before = check_units(path, child.acknowledged)
    another_boot(path)
    for _ in range(3):
        opener = spawn(f"{point}=kill@{visit}")
        if not opener.may_die("open_writer", "opener", str(path), {}):
            break  # its last call of this sort was before
        assert check_units(path, child.acknowledged) == before
    with jlog.Writer(path) as writer:
        first = writer.append(values_of("after", 0)[0])
    assert check_units(path, child.acknowledged)[:-1] == before
    gaps = jlog.Journal(path).gaps()
    # What never was under way to be given out leaves no hole.
    assert gaps in ([(len(before), first)], []) if journal == "closed" else [(len(before), first)]
    assert len(jlog.Journal(path)) == len(before) + 1


@pytest.mark.parametrize("first", STEPS)
@pytest.mark.parametrize("second", STEPS)
def test_a_recovery_killed_twice_at_any_steps_loses_nothing(killed, spawn, tmp_path, first, second):
    path = tmp_path / "j"
    before = check_units(path, killed.acknowledged)
    another_boot(path)
    for step in (first, second):
        opener = spawn(f"recovery.{step}=kill@1")
        opener.may_die("open_writer", "opener", str(path), {})
        opener.discard()
        another_boot(path)
    with jlog.Writer(path) as writer:
        first = writer.append(values_of("after", 0)[0])
    assert check_units(path, killed.acknowledged)[:-1] == before
    # An opener whose step did not come again has opened the journal: another hole follows the first then.
    gaps = jlog.Journal(path).gaps()
    assert (gaps[0][0], gaps[-1][1]) == (len(before), first)


def test_a_subscriber_at_the_end_goes_on_after_a_gap(spawn, tmp_path):
    """The gap is that of a power loss. The segment that the subscriber stood in may have been removed since."""
    path = tmp_path / "j"
    jlog.Journal.create(path, sync="append").add_subscriber("billing")
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 10, 100)
    with jlog.Reader(path, "billing") as reader:
        assert len(reader.read(1000)) == 10
        reader.commit()
        reader.checkpoint("end of day")
    child.kill()
    another_boot(path)
    journal = jlog.Journal(path)
    with jlog.Writer(path) as writer:
        writer.append(b"new")
        journal.clean()
        assert journal.first_sequence == writer.next_sequence - 1 > 10
        with jlog.Reader(path, "billing") as reader:
            assert [record.value for record in reader] == [b"new"]
            reader.rewind("end of day")
            assert [record.value for record in reader] == [b"new"]
        journal.set_subscriber("billing", 10)
        with jlog.Reader(path, "billing") as reader:
            assert [record.value for record in reader] == [b"new"]
        with pytest.raises(jlog.PositionLost):
            journal.set_subscriber("billing", 9)


def test_a_position_at_records_lost_with_power_can_be_opened(tmp_path):
    """The commit had survived, and the records before it were never synced."""
    path = tmp_path / "j"
    with jlog.Writer(path, sync="none") as writer:
        writer.append(b"synced")
        writer.sync()
        with jlog.Reader(path, "billing") as reader:
            writer.extend([b"lost"] * 3)
            assert len(reader.read(10)) == 4
            reader.commit()
        left = lose_unsynced(path, tmp_path / "left")
    with jlog.Reader(left, "billing", create=False) as reader:
        assert list(reader) == []
        with jlog.Writer(left) as writer:
            new = writer.append(b"new")
        assert [(record.sequence, record.value) for record in reader] == [(new, b"new")]
    assert jlog.Journal(left).gaps() == [(1, new)]
