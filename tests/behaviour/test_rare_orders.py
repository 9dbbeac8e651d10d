"""Orders of events that are rare, and must be harmless all the same."""

import os

import pytest

import jlog
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.system.lock import LockFile
from jlog.care import cleaning


@pytest.fixture
def bounds(path):
    journal = jlog.Journal.create(path)
    lock_file = LockFile(str(path / "lock"))
    yield BoundsFile(str(path / "bounds"), bytes.fromhex(journal.uuid), lock_file)
    lock_file.close()


def test_a_slow_sync_does_not_move_the_mark_back(path, bounds):
    """The segment there may be gone."""
    bounds.update(mark=(10, 168, 10))
    assert bounds.update(mark=(0, 4000, 10)).mark_segment == 10
    assert bounds.update(mark=(10, 300, 12)).mark_sequence == 12
    jlog.Journal.delete(path)


def test_a_sync_does_not_wait_for_a_process_that_writes_bounds(path, bounds):
    other = LockFile(str(path / "lock"))
    with jlog.Writer(path, sync="append") as writer:
        writer.append(b"a")
        assert bounds.read().mark_sequence == 1
        with other.held(1):
            writer.append(b"b")
            assert jlog.Journal(path).stats().durable_end == 2
            assert bounds.read().mark_sequence == 1
        writer.append(b"c")
        assert bounds.read().mark_sequence == 3
    other.close()


def test_a_mark_that_cannot_move_is_logged_once(path, bounds, caplog):
    """No append fails."""
    with jlog.Writer(path, sync="append") as writer:
        writer.append(b"a")
        content = (path / "bounds").read_bytes()
        (path / "bounds").write_bytes(b"x" * len(content))
        assert [writer.append(b"b"), writer.append(b"c")] == [1, 2]
        assert [record.message for record in caplog.records if "synced mark" in record.message] == [
            f"{path}/bounds: the synced mark cannot be moved: Bad message"
        ]
        (path / "bounds").write_bytes(content)
        writer.append(b"d")
        assert bounds.read().mark_sequence == 4


def test_a_writer_does_not_write_to_a_journal_made_anew(path):
    writer = jlog.Writer(path)
    writer.append(b"old")
    writer.flush()
    for name in os.listdir(path):
        if (path / name).is_dir():
            (path / name).rmdir()
        else:
            (path / name).unlink()
    jlog.Journal.create(path)
    with jlog.Writer(path) as other:
        assert other.append(b"new") == 0
    with pytest.raises(jlog.JournalMoved, match="removed or replaced"):
        writer.append(b"old too")
    with pytest.raises(jlog.JournalMoved):
        writer.close()
    assert list(jlog.Reader(path).values()) == [b"new"]


def test_a_failed_exclusive_writer_lets_others_in(path, monkeypatch, failpoints):
    with jlog.Writer(path) as first:
        monkeypatch.setenv("JLOG_FAILPOINTS", "file.sync_directory=28@0")
        with pytest.raises(OSError, match="No space"):
            jlog.Writer(path, exclusive=True, segment_bytes=1 << 20)
        monkeypatch.delenv("JLOG_FAILPOINTS")
        probe = LockFile(str(path / "lock"))
        assert probe.acquire(3, shared=True, timeout=0)
        probe.close()
        first.append(b"x")


def test_a_roll_whose_prepared_file_is_gone_fails_once(path):
    with jlog.Writer(path) as writer:
        writer.append(b"a")
        writer.roll()
        writer.append(b"b")
        writer.roll()  # by now a file is kept ready, or is made when needed
        for name in os.listdir(path):
            if name.startswith("next."):
                os.unlink(path / name)
        for value in (b"c", b"d", b"e"):
            writer.append(value)
            try:
                writer.roll()
            except FileNotFoundError:
                writer.roll()
        assert list(jlog.Reader(path).values()) == [b"a", b"b", b"c", b"d", b"e"]


def test_an_append_succeeds_though_what_follows_a_roll_fails(path, monkeypatch):
    def fail(_path, **_):
        raise RuntimeError("the cleaning is broken")

    monkeypatch.setattr(cleaning, "clean_if_free", fail)
    with jlog.Writer(path, segment_bytes=4096, precommit=4096) as writer:
        assert [writer.append(b"x" * 500) for _ in range(40)] == list(range(40))
    assert len(jlog.Journal(path)) == 40


def test_skip_damage_raises_position_lost_for_a_lost_subscriber(path):
    with jlog.Writer(path, segment_bytes=4096, precommit=4096) as writer:
        jlog.Journal(path).add_subscriber("late")
        os.rename(path / "subscribers" / "late", path / "subscribers" / ".late")
        with jlog.Reader(path, "billing") as reader:
            for _ in range(40):
                writer.append(b"x" * 500)
            list(reader)
            reader.commit()
        os.rename(path / "subscribers" / ".late", path / "subscribers" / "late")
    with jlog.Reader(path, "late") as reader, pytest.raises(jlog.PositionLost):
        reader.skip_damage()


def test_a_writer_closed_by_its_own_arguments_finishes_the_call(path):
    writer = jlog.Writer(path)

    class State(dict):
        def items(self):
            writer.close()
            return super().items()

    assert writer.extend([b"a"], state=State({b"k": b"v"})) == 0
    assert jlog.Journal(path).state() == {b"k": b"v"}
