"""The numbers of a journal continue after a gap, also if the process that skips them is killed."""

import pytest

import jlog
from crash.tampering import another_boot, copy
from jlog.care.numbering import continue_at

KILLS = [
    ("recovery.begun", 1),
    ("recovery.cut", 1),
    ("recovery.segment_written", 1),
    ("recovery.segment_created", 1),
    ("recovery.marked", 1),
    ("file.write", 1),
    ("file.sync", 1),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        writer.extend([b"0", b"1"], state={b"key": b"value"})
    return path


def records(path):
    with jlog.Reader(path) as reader:
        return [(record.sequence, record.value) for record in reader]


@pytest.mark.parametrize("sync", ["none", "interval", "append"])
def test_numbers_continue_after_a_gap(path, sync):
    jlog.Writer(path, sync=sync).close()
    with jlog.Reader(path, "early") as reader:
        continue_at(str(path), 100)
        assert jlog.Journal(path).next_sequence == 100
        with jlog.Writer(path) as writer:
            assert writer.append(b"100") == 100
        assert [record.sequence for record in reader] == [0, 1, 100]
    assert jlog.Journal(path).gaps() == [(2, 100)]
    assert jlog.Journal(path).state() == {b"key": b"value"}
    assert jlog.Journal(path).verify().ok


def test_a_new_journal_begins_at_a_number(tmp_path):
    path = tmp_path / "new"
    jlog.Journal.create(path)
    continue_at(str(path), 7)
    with jlog.Writer(path) as writer:
        assert writer.extend([b"7", b"8"]) == 7
    assert records(path) == [(7, b"7"), (8, b"8")]


def test_many_gaps_one_after_the_other(path):
    for number in (10, 10, 11, 50):
        continue_at(str(path), number)
        another_boot(path)
    with jlog.Writer(path) as writer:
        assert writer.append(b"50") == 50
    assert records(path) == [(0, b"0"), (1, b"1"), (50, b"50")]


def test_a_number_that_has_a_record_stays(path):
    continue_at(str(path), 1)
    with jlog.Writer(path) as writer:
        assert writer.append(b"2") == 2
    assert jlog.Journal(path).gaps() == []


def test_a_number_whose_record_was_lost_is_given_again(path, spawn):
    """An ordinary start passes over it."""
    child = spawn()
    child.call("open_writer", "lost", str(path), {})
    child.process.kill()
    child.process.wait()
    another_boot(path)
    ordinary = copy(path, path.with_name("copy"))
    continue_at(str(path), 2)
    with jlog.Writer(path) as writer, jlog.Writer(ordinary) as other:
        assert writer.append(b"2") == 2
        assert other.append(b"2") > 2


def test_a_journal_that_is_written_to_is_refused(path, spawn):
    spawn().call("open_writer", "other", str(path), {})
    with pytest.raises(jlog.JournalLocked, match="close its writers"):
        continue_at(str(path), 100)


@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize("after", ["the same boot", "another boot", "a copy"])
@pytest.mark.parametrize(("point", "visit"), KILLS)
def test_a_kill_leaves_the_end_before_or_after_the_gap(path, spawn, tmp_path, point, visit, after):
    """Another attempt completes it."""
    spawn(f"{point}=kill@{visit}").dies("pass_over", str(path), 100)
    if after == "another boot":
        another_boot(path)
    elif after == "a copy":
        path = copy(path, tmp_path / "copy")
    assert records(path) == [(0, b"0"), (1, b"1")]
    continue_at(str(path), 100)
    with jlog.Writer(path) as writer:
        assert writer.append(b"100") == 100
    assert records(path) == [(0, b"0"), (1, b"1"), (100, b"100")]
    assert jlog.Journal(path).state() == {b"key": b"value"}
