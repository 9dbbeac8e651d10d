"""Damage: never returned, never passed over silently, and there is a way past it."""

import os
import random

import pytest

import jlog
from behaviour.journals import SMALL, fill, read_away, records, value_of, values
from crash.tampering import change, flip, open_body_at

pytestmark = pytest.mark.damage


@pytest.fixture
def blocks(path):
    """A closed journal of five segments with a block of ten records each; the blocks."""
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10) as writer:
        for _ in range(5):
            fill(writer, 10)
            writer.roll()
    return [(file, block) for file, block in jlog.Journal(path).blocks() if block.records]


PLACES = {"header": 40, "first byte": 0, "body": 72 + 500, "last byte": -1}


@pytest.fixture(params=PLACES.values(), ids=PLACES.keys())
def damaged(request, path, blocks):
    """The third block has a bit flipped. Its file and offset."""
    file, block = blocks[2]
    flip(file, block.offset + (request.param if request.param >= 0 else 72 + block.stored_bytes - 1))
    return file, block.offset


def check_passed(path, rest):
    """A reader meets damage, which has cost it a block, and reads the rest."""
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.CorruptJournal):
            list(reader)
        assert reader.skip_damage().records_lost == 10
        assert [record.sequence for record in reader] == list(rest)


def test_a_reader_returns_all_before_damage_and_then_its_place(path, damaged):
    file, offset = damaged
    with jlog.Reader(path) as reader:
        found = []
        with pytest.raises(jlog.CorruptJournal, match=os.path.basename(file)) as caught:
            found.extend(reader.values())
        assert (caught.value.path, caught.value.offset) == (file, offset)
        assert caught.value.reason
        assert reader.position == 20
        with pytest.raises(jlog.CorruptJournal):
            list(reader)


def test_skip_damage_reports_the_loss_and_the_iterator_goes_on(path, damaged):
    with jlog.Reader(path) as reader:
        iterator, found = reader.values(), []
        with pytest.raises(jlog.CorruptJournal):  # noqa: PT012
            while True:
                found.append(next(iterator))
        assert found == [value_of(number) for number in range(20)]
        lost = reader.skip_damage()
        assert (lost.path, lost.offset, lost.first_sequence, lost.records_lost) == (*damaged, 20, 10)
        assert list(iterator) == [value_of(number) for number in range(30, 50)]
        assert reader.position == 50


@pytest.mark.parametrize("way", ["iteration", "values", "read", "follow"])
def test_every_way_of_reading_meets_it(path, damaged, way):
    with jlog.Reader(path, "billing") as reader:
        with pytest.raises(jlog.CorruptJournal):  # noqa: PT012
            for _ in range(10):
                if way == "iteration":
                    list(reader)
                elif way == "values":
                    list(reader.values())
                elif way == "read":
                    reader.read(max_records=15)
                else:
                    list(reader.follow(timeout=0))
        reader.skip_damage()
        assert [record.sequence for record in reader] == list(range(30, 50))
        reader.commit()


def test_reading_beyond_it_is_as_if_it_were_not_there(path, damaged):
    assert values(path, start=35) == [value_of(number) for number in range(35, 50)]
    with jlog.Reader(path, start="end") as reader:
        assert [record.sequence for record in reader.read_backward(20)] == list(range(49, 29, -1))


def test_verify_lists_it_and_counts_what_is_whole(path, damaged):
    report = jlog.Journal(path).verify()
    assert not report.ok
    assert (report.records, len(report.damage)) == (40, 1)
    (damage,) = report.damage
    assert (damage.path, damage.offset, damage.first_sequence, damage.records_lost) == (*damaged, 20, 10)


def test_writing_goes_on_and_nothing_is_cut(path, damaged):
    with jlog.Writer(path, **SMALL) as writer:
        assert writer.next_sequence == 50
        fill(writer, 10)
    assert values(path, start=30) == [value_of(number) for number in range(30, 60)]
    assert jlog.Journal(path).verify().damage[0].offset == damaged[1]


def test_there_is_nothing_to_skip_where_nothing_is_damaged(path, blocks):
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.JournalError, match="no damage"):
            reader.skip_damage()
        assert reader.position == 0
        list(reader)
        with pytest.raises(jlog.JournalError, match="no damage"):
            reader.skip_damage()


def test_several_places_are_listed_and_skipped_one_by_one(path, blocks):
    for number in (0, 2, 4):
        flip(blocks[number][0], blocks[number][1].offset + 100)
    report = jlog.Journal(path).verify()
    assert [(damage.first_sequence, damage.records_lost) for damage in report.damage] == [
        (0, 10),
        (20, 10),
        (40, 10),
    ]
    with jlog.Reader(path) as reader:
        found, lost = [], []
        while reader.position < 50:
            try:
                for record in reader:
                    found.append(record.sequence)  # noqa: PERF401
            except jlog.CorruptJournal:
                lost.append(reader.skip_damage().first_sequence)
    assert lost == [0, 20, 40]
    assert found == [*range(10, 20), *range(30, 40)]


def test_a_segment_file_that_is_missing_is_damage(path, blocks):
    os.unlink(blocks[2][0])
    check_passed(path, range(30, 50))


def test_verify_finds_that_a_segment_file_is_missing(path, blocks):
    os.unlink(blocks[2][0])
    report = jlog.Journal(path).verify()
    assert not report.ok


@pytest.mark.parametrize("left", [0, 50, 96, 200, 700])
def test_a_segment_file_that_is_cut_off_is_damage(path, blocks, left):
    os.truncate(blocks[2][0], left)
    report = jlog.Journal(path).verify()
    assert not report.ok
    assert report.records == 40
    check_passed(path, range(30, 50))


def test_a_segment_of_noise_is_damage_and_nothing_worse(path, blocks):
    change(blocks[2][0], 0, random.Random(1).randbytes(os.path.getsize(blocks[2][0])))
    assert not jlog.Journal(path).verify().ok
    check_passed(path, range(30, 50))


def test_damage_in_the_open_segment_is_met_and_passed(path):
    with jlog.Writer(path, precommit=4 << 10) as writer:
        for _ in range(3):
            fill(writer, 10)
            writer.flush()
        fill(writer, 5)
        file, block = [found for found in jlog.Journal(path).blocks() if found[1].records][1]
        flip(file, block.offset + 100)
        check_passed(path, range(20, 35))
        assert not jlog.Journal(path).verify().ok
        assert fill(writer, 1)


@pytest.mark.parametrize("damaged", [0, 4096], ids=["first", "second"])
@pytest.mark.parametrize("file", ["bounds", "subscribers/billing"])
def test_one_damaged_copy_of_a_small_file_changes_nothing(path, blocks, file, damaged):
    read_away(path, "billing", 5)
    flip(path / file, damaged + 45)
    assert jlog.Journal(path).verify().ok
    assert jlog.Journal(path).subscribers()["billing"].sequence == 5
    with jlog.Writer(path) as writer, jlog.Reader(path, "billing") as reader:
        assert writer.append(b"x") == 50
        assert next(iter(reader)).sequence == 5
        reader.commit()
        assert reader.committed == 6


def test_without_bounds_nobody_appends(path, blocks):
    """A writer without them might use a sequence twice."""
    flip(path / "bounds", 45)
    flip(path / "bounds", 4096 + 45)
    with pytest.raises(jlog.CorruptJournal, match="repair"):
        jlog.Writer(path)


def test_verify_lists_damaged_bounds(path, blocks):
    flip(path / "bounds", 45)
    flip(path / "bounds", 4096 + 45)
    report = jlog.Journal(path).verify()
    assert os.path.basename(report.damage[0].path) == "bounds"


def test_a_damaged_position_is_an_error_that_says_how_to_set_it(path, blocks):
    journal = jlog.Journal(path)
    journal.add_subscriber("billing", start=5)
    (path / "subscribers" / "billing").write_bytes(random.Random(1).randbytes(8192))
    with pytest.raises(jlog.CorruptJournal, match="subscriber set"):
        jlog.Reader(path, "billing")
    assert [os.path.basename(damage.path) for damage in journal.verify().damage] == ["billing"]
    journal.set_subscriber("billing", 7)
    assert journal.verify().ok
    with jlog.Reader(path, "billing") as reader:
        assert next(iter(reader)).sequence == 7


def test_the_other_positions_are_told_beside_a_damaged_one(path, blocks):
    journal = jlog.Journal(path)
    journal.add_subscriber("broken")
    journal.add_subscriber("whole", start=7)
    (path / "subscribers" / "broken").write_bytes(bytes(8192))
    assert journal.subscribers()["whole"].sequence == 7


def test_the_open_blocks_damage_is_met_by_a_reader_and_by_verify(path):
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        at = open_body_at(path) + 300
        flip(path / "precommit", at)
        with jlog.Reader(path) as reader, pytest.raises(jlog.CorruptJournal, match="precommit"):
            list(reader)
        report = jlog.Journal(path).verify()
        assert [os.path.basename(damage.path) for damage in report.damage] == ["precommit"]
        flip(path / "precommit", at)
        assert len(records(path)) == 10


def test_a_truncated_buffer_is_an_error_to_readers_and_no_signal(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
    os.truncate(path / "precommit", 100)
    assert len(records(path)) == 100
    assert jlog.Journal(path).next_sequence == 100


def backward(reader, count):
    """All that reading backward gives, and what it says is lost; each damage is skipped once."""
    found, lost = [], []
    while True:
        try:
            records = reader.read_backward(count)
        except jlog.CorruptJournal:
            position = reader.position
            lost.append(reader.skip_damage())
            assert reader.position < position
            continue
        if not records:
            return found, lost
        found += [record.sequence for record in records]


@pytest.mark.parametrize("count", [1, 3, 7, 10, 60])
def test_reading_backward_goes_on_before_it(path, damaged, count):
    with jlog.Reader(path, start="end") as reader:
        found, lost = backward(reader, count)
    assert found == [*range(49, 29, -1), *range(19, -1, -1)]
    assert [(one.path, one.offset, one.first_sequence, one.records_lost) for one in lost] == [(*damaged, 20, 10)]


@pytest.mark.parametrize("broken", [[0], [4], [1, 3], [1, 2], [0, 1, 2, 3, 4]])
def test_reading_backward_passes_each_damaged_block_and_no_other(path, blocks, broken):
    for number in broken:
        file, block = blocks[number]
        flip(file, block.offset + 72 + 100)
    intact = [sequence for sequence in range(49, -1, -1) if sequence // 10 not in broken]
    for count in (1, 4, 25):
        with jlog.Reader(path, start="end") as reader:
            found, lost = backward(reader, count)
        assert found == intact
        assert sum(one.records_lost for one in lost) == 10 * len(broken)


def test_reading_forward_after_damage_met_backward_is_as_ever(path, damaged):
    with jlog.Reader(path, start=30) as reader:
        with pytest.raises(jlog.CorruptJournal):
            reader.read_backward(5)
        assert reader.position == 30
        assert [record.sequence for record in reader] == list(range(30, 50))
        with pytest.raises(jlog.JournalError, match="no damage"):
            reader.skip_damage()
