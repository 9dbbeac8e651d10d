"""A writer's life: what it tells, flush, roll, close, and its way into another process."""

import copy
import multiprocessing
import os
import pickle

import pytest

import jlog
from behaviour.journals import SMALL, fill, value_of, values
from elsewhere import run_python

SEGMENT = f"{0:020d}.seg"


def test_it_tells_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with jlog.Writer("j") as writer:
        assert writer.path == str(tmp_path / "j")
        assert str(tmp_path / "j") in repr(writer)


def test_next_sequence_is_that_of_the_next_record(writer, path):
    assert writer.next_sequence == 0
    writer.append(b"a")
    assert writer.next_sequence == 1
    writer.extend([b"b"] * 50)
    assert writer.next_sequence == 51
    writer.close()
    with jlog.Writer(path) as again:
        assert again.next_sequence == 51


def test_flush_sync_and_roll_of_an_empty_journal_do_nothing(writer, path):
    writer.flush()
    writer.sync()
    writer.roll()
    assert len(jlog.Journal(path).segments()) == 1
    assert writer.append(b"a") == 0


def test_a_roll_opens_a_segment_at_the_next_sequence(writer, path):
    fill(writer, 5)
    writer.roll()
    assert [segment.first_sequence for segment in jlog.Journal(path).segments()] == [0, 5]
    writer.roll()
    assert len(jlog.Journal(path).segments()) == 2, "a segment without records is not rolled away from"
    fill(writer, 1)
    writer.roll()
    assert [segment.first_sequence for segment in jlog.Journal(path).segments()] == [0, 5, 6]
    assert values(path) == [value_of(number) for number in range(6)]


def test_a_sealed_segments_file_ends_with_its_blocks(writer, path):
    fill(writer, 5)
    writer.roll()
    sealed = jlog.Journal(path).segments()[0]
    assert sealed.sealed
    assert os.path.getsize(sealed.path) == sealed.size_bytes


def test_close_flushes_and_cuts_the_preallocated_end_off(path):
    writer = jlog.Writer(path)
    writer.append(b"value")
    assert os.path.getsize(path / SEGMENT) == 64 << 20
    writer.close()
    assert os.path.getsize(path / SEGMENT) == jlog.Journal(path).size_bytes < 1000
    assert b"value" in (path / SEGMENT).read_bytes()


def test_the_preallocated_end_stays_while_another_writer_lives(path):
    one, other = jlog.Writer(path), jlog.Writer(path)
    one.append(b"a")
    one.close()
    assert os.path.getsize(path / SEGMENT) == 64 << 20
    assert other.append(b"b") == 1
    other.close()
    assert os.path.getsize(path / SEGMENT) < 1000
    assert values(path) == [b"a", b"b"]


CALLS = {
    "append": lambda writer: writer.append(b"a"),
    "append with a key": lambda writer: writer.append(b"a", key=b"k"),
    "extend": lambda writer: writer.extend([b"a"]),
    "extend with nothing": lambda writer: writer.extend([]),
    "state": lambda writer: writer.extend([], state={b"k": b"v"}),
    "flush": lambda writer: writer.flush(),
    "sync": lambda writer: writer.sync(),
    "roll": lambda writer: writer.roll(),
    "next_sequence": lambda writer: writer.next_sequence,
    "precommit": lambda writer: writer.precommit,
    "with": lambda writer: writer.__enter__(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_a_closed_writer_raises(path, call, precommit):
    writer = jlog.Writer(path, precommit=precommit)
    writer.append(b"value")
    writer.close()
    with pytest.raises(jlog.JournalClosed, match=str(path)):
        call(writer)
    assert values(path) == [b"value"]


def test_a_closed_writer_still_tells_its_path_and_closes_again(path):
    writer = jlog.Writer(path)
    writer.close()
    writer.close()
    assert writer.path == str(path)
    assert "closed" in repr(writer)


def test_closing_a_writer_leaves_others_of_the_process_open(path):
    one, other = jlog.Writer(path, **SMALL), jlog.Writer(path, **SMALL)
    fill(one, 10)
    one.close()
    assert len(fill(other, 10)) == 10
    other.close()
    assert len(values(path)) == 20


def test_with_closes_it_also_when_the_body_raises(path):
    with pytest.raises(RuntimeError, match="body"):  # noqa: PT012
        with jlog.Writer(path) as writer:
            writer.append(b"value")
            raise RuntimeError("body")
    with pytest.raises(jlog.JournalClosed):
        writer.append(b"a")
    assert os.path.getsize(path / SEGMENT) < 1000
    assert values(path) == [b"value"]


def test_a_forgotten_writer_loses_nothing_and_is_closed(path):
    writer = jlog.Writer(path)
    writer.append(b"value")
    del writer
    assert os.path.getsize(path / SEGMENT) < 1000
    assert values(path) == [b"value"]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_it_pickles_as_its_path_and_options_and_reopens(path, protocol):
    with jlog.Writer(path, **SMALL) as writer:
        writer.append(b"a")
        again = pickle.loads(pickle.dumps(writer, protocol))
        assert (again.path, again.precommit, again.next_sequence) == (writer.path, writer.precommit, 1)
        assert again.append(b"b") == 1
        again.close()
    assert values(path) == [b"a", b"b"]


def test_a_pickled_writer_keeps_every_option(path):
    given = {"precommit": 0, "segment_bytes": 8 << 10, "retention": jlog.Retention(delete_read=False)}
    with jlog.Writer(path, **given, lock_timeout=2.5) as writer, pickle.loads(pickle.dumps(writer)) as again:
        assert again.precommit == 0
        assert again.__reduce__() == writer.__reduce__()


def test_a_pickled_writer_makes_its_journal_anew_only_if_told(path):
    with jlog.Writer(path) as writer:
        making, finding = pickle.dumps(writer), pickle.dumps(jlog.Writer(path, create=False))
    jlog.Journal.delete(path)
    with pytest.raises(jlog.JournalNotFound):
        pickle.loads(finding)
    with pickle.loads(making) as again:
        assert again.append(b"a") == 0


def test_a_copy_is_another_writer_of_the_same_journal(path):
    with jlog.Writer(path) as writer, copy.copy(writer) as other:
        assert other is not writer
        assert [writer.append(b"a"), other.append(b"b")] == [0, 1]


def append_some(writer, count):
    for _ in range(count):
        writer.append(b"child")
    writer.close()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_it_is_handed_to_processes_of_any_start_method(path, method):
    with jlog.Writer(path, **SMALL) as writer:
        writer.append(b"parent")
        process = multiprocessing.get_context(method).Process(target=append_some, args=(writer, 100))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert writer.append(b"parent") == 101
    assert values(path) == [b"parent", *[b"child"] * 100, b"parent"]


def test_it_cannot_be_made_twice(writer, path):
    with pytest.raises(RuntimeError):
        writer.__init__(path)
    assert writer.append(b"a") == 0


def test_the_collector_closes_a_writer_while_another_one_opens(path):
    """Neither of the two holds the other up."""
    run_python(f"""
import gc
import jlog.system.filesystem

class Owner:
    pass

owner = Owner()
owner.itself = owner
owner.writer = jlog.Writer({str(path)!r})
gc.disable()
del owner
check = jlog.system.filesystem.check_local
jlog.system.filesystem.check_local = lambda path: (gc.collect(), check(path))  # it may come at any allocation
jlog.Writer({str(path) + "-other"!r}).append(b"value")
""")
