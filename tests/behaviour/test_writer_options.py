"""A writer's options: its own, and those that belong to the journal."""

import os

import pytest

import jlog
from behaviour.journals import SMALL, fill, values
from jlog._core.system.lock import RANGES, LockFile

KIB = 1 << 10


def options(path):
    return jlog.Journal(path).options


def test_a_new_journal_has_the_documented_defaults(path):
    jlog.Writer(path).close()
    found = options(path)
    assert (found.precommit, found.segment_bytes) == (128 * KIB, 64 << 20)
    assert (found.compression, found.roll, found.sync, found.sync_interval) == ("none", "never", "none", 1.0)
    assert found.retention.delete_read is True


REFUSED = {
    "compression": ("gzip", ValueError, "none"),
    "roll": ("fortnightly", ValueError, "never"),
    "sync": ("always", ValueError, "none"),
    "sync_interval": (0, ValueError, "above 0"),
    "segment_bytes": (4095, ValueError, "from 4096 .*4 KiB"),
    "precommit": (4095, ValueError, "from 4096 .*4 KiB"),
    "lock_timeout": (-1, ValueError, "at least 0"),
    "retention": ({"delete_read": True}, TypeError, "jlog.Retention"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_is_not_allowed_is_refused_with_the_choices(path, name):
    value, error, allowed = REFUSED[name]
    with pytest.raises(error, match=f"(?s){name}.*{allowed}"):
        jlog.Writer(path, **{name: value})


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_value_makes_no_journal(path, name):
    value, error, _ = REFUSED[name]
    with pytest.raises(error):
        jlog.Writer(path, **{name: value})
    assert not path.exists()


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in ("precommit", "lock_timeout")])
def test_a_refused_value_leaves_an_existing_journal_as_it_was(writer, path, name):
    before = options(path)
    value, error, _ = REFUSED[name]
    with pytest.raises(error):
        jlog.Writer(path, **{name: value})
    assert options(path) == before
    assert writer.append(b"value") == 0


@pytest.mark.parametrize(
    "given",
    [
        {"precommit": -1},
        {"precommit": (1 << 30) + 1},
        {"segment_bytes": (1 << 40) + 1},
        {"segment_bytes": 0},
        {"sync_interval": -1.0},
        {"sync_interval": float("nan")},
    ],
)
def test_numbers_outside_of_their_range_are_refused(path, given):
    with pytest.raises(ValueError, match=next(iter(given))):
        jlog.Writer(path, **given)


@pytest.mark.parametrize("name", ["precommit", "segment_bytes"])
@pytest.mark.parametrize("value", ["64K", 8192.0, True])
def test_a_size_is_an_int(path, name, value):
    with pytest.raises(TypeError, match=name):
        jlog.Writer(path, **{name: value})


def test_an_option_that_does_not_exist_is_a_type_error(path):
    with pytest.raises(TypeError, match="segment_size"):
        jlog.Writer(path, segment_size=1)
    with pytest.raises(TypeError, match=r"segment_size.*segment_bytes"):
        jlog.Journal.create(path, segment_size=1)
    assert not path.exists()


def test_all_but_the_path_are_keywords(path):
    with pytest.raises(TypeError):
        jlog.Writer(path, 0)


def test_a_value_given_to_an_existing_journal_holds_from_then_on(path):
    kept = jlog.Retention(delete_read=False)
    jlog.Writer(path, precommit=4 * KIB, segment_bytes=1 << 20, retention=kept).close()
    with jlog.Writer(path, precommit=4 * KIB, segment_bytes=4 * KIB) as writer:
        assert options(path).segment_bytes == 4 * KIB
        assert options(path).retention.delete_read is False
        fill(writer, 200)
    assert len(jlog.Journal(path).segments()) > 4
    with jlog.Writer(path):
        assert options(path).segment_bytes == 4 * KIB


def test_an_open_writer_follows_a_change_of_the_segments_size(path):
    with jlog.Writer(path, precommit=4 * KIB) as writer:
        fill(writer, 200)
        assert len(jlog.Journal(path).segments()) == 1
        with jlog.Writer(path, segment_bytes=4 * KIB):
            written = fill(writer, 200)
        assert len(jlog.Journal(path).segments()) > 4
    assert values(path)[200:] == written


def test_segments_keep_to_their_size_where_records_allow_it(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 500)
    assert all(segment.size_bytes <= 4 * KIB for segment in jlog.Journal(path).segments())


def test_precommit_0_is_0_for_that_writer_alone(path):
    with jlog.Writer(path, precommit=0) as bypassing, jlog.Writer(path) as other:
        assert bypassing.precommit == 0
        assert other.precommit == 128 * KIB


@pytest.mark.parametrize("asked", [4 * KIB, 5000, 64 * KIB, 1 << 20])
def test_the_creators_capacity_is_the_journals(path, asked):
    with jlog.Writer(path, precommit=asked) as writer:
        assert writer.precommit >= asked
        capacity = writer.precommit
    with jlog.Writer(path, precommit=4 * KIB) as writer:
        assert writer.precommit == capacity


def test_the_capacity_grows_for_a_writer_that_is_alone_and_stays(path):
    jlog.Writer(path, precommit=4 * KIB).close()
    with jlog.Writer(path, precommit=16 * KIB) as writer:
        assert writer.precommit == 16 * KIB
        written = fill(writer, 300)
    with jlog.Writer(path, precommit=8 * KIB) as writer:
        assert writer.precommit == 16 * KIB
    assert values(path) == written


def test_the_options_give_the_capacity_that_the_buffer_grew_to(path):
    jlog.Writer(path, precommit=4 * KIB).close()
    with jlog.Writer(path, precommit=16 * KIB):
        assert options(path).precommit == 16 * KIB
        assert jlog.Journal(path).info()["precommit"] == 16 * KIB


def test_the_capacity_does_not_grow_while_another_writer_lives(path):
    with jlog.Writer(path, precommit=4 * KIB) as first, jlog.Writer(path, precommit=64 * KIB) as second:
        assert first.precommit == second.precommit == 4 * KIB
        second.append(b"x" * 10_000)
    with jlog.Writer(path, precommit=64 * KIB) as writer:
        assert writer.precommit == 64 * KIB
    assert values(path) == [b"x" * 10_000]


def test_the_buffer_grows_with_records_of_a_killed_process_in_it(path):
    jlog.Writer(path, precommit=4 * KIB).close()
    child = os.fork()
    if child == 0:
        jlog.Writer(path, precommit=4 * KIB).append(b"left")
        os._exit(0)
    os.waitpid(child, 0)
    with jlog.Writer(path, precommit=64 * KIB) as writer:
        assert writer.precommit == 64 * KIB
        written = [b"left", *fill(writer, 300)]
    assert values(path) == written


def test_an_exclusive_writer_lets_its_own_process_go_on(path):
    with jlog.Writer(path, exclusive=True) as writer:
        writer.append(b"a")
        with jlog.Writer(path) as other:
            other.append(b"b")
    assert values(path) == [b"a", b"b"]


def test_create_false_makes_nothing(path):
    with pytest.raises(jlog.JournalNotFound, match=str(path)):
        jlog.Writer(path, create=False)
    assert not path.exists()
    jlog.Journal.create(path)
    with jlog.Writer(path, create=False) as writer:
        assert writer.append(b"value") == 0


def test_missing_directories_above_the_journal_are_made(tmp_path):
    with jlog.Writer(tmp_path / "a" / "b" / "j") as writer:
        writer.append(b"value")
    assert values(tmp_path / "a" / "b" / "j") == [b"value"]


def test_lock_timeout_limits_the_wait_for_an_opening_process(path):
    jlog.Writer(path).close()
    lock_file = LockFile(str(path / "lock"))
    with lock_file.held(RANGES["open"]):
        with pytest.raises(jlog.JournalLocked, match="lock_timeout"):
            jlog.Writer(path, lock_timeout=0.01)
    with jlog.Writer(path, lock_timeout=0.01) as writer:
        with lock_file.held(RANGES["open"]), pytest.raises(jlog.JournalLocked, match="lock_timeout"):
            jlog.Writer(path, lock_timeout=0.01, compression="lz4")
        writer.append(b"value")
    lock_file.close()
    assert values(path) == [b"value"]
