"""A system call fails: the call raises OSError with errno and path, nothing of it is readable, and when the error has
gone appending goes on without a restart. A failed fdatasync is different: it is never forgiven."""

import errno

import pytest

import jlog
from processes.children import Raised
from processes.units import check_units, part_of, read_all

pytestmark = pytest.mark.usefixtures("failpoints")

OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}


@pytest.fixture
def child(spawn, tmp_path):
    child = spawn()
    child.call("open_writer", "w", str(tmp_path / "j"), OPTIONS)
    child.call("open_writer", "direct", str(tmp_path / "j"), {"precommit": 0})
    child.call("append", "w", 3, 100)
    return child


def fails(child, raised_by, failpoint, *call):
    """The call until it raises, under the name `failing`; the error."""
    child.call("arm", failpoint)
    error = raised_by(child, *call)
    child.call("arm", "")
    return error


def raises_if_visited(child, *call):
    """The error that the call raised, or None if it was not the failpoint's turn."""
    try:
        child.call(*call)
    except Raised as error:
        return error
    return None


CASES = {
    "a full buffer that cannot be written": ("file.write_block=28@0", ("append", "failing", 200, 100, "w")),
    "an input error": ("file.write_block=5@0", ("extend", "failing", 20, 20, 100, False, "w")),
    "an extend": ("file.write_block=28@2", ("extend", "failing", 50, 5, 100, False, "w")),
    "a direct block": ("file.write_block=28@2", ("append", "failing", 20, 100, "direct")),
    "a direct extend": ("file.write_block=28@3", ("extend", "failing", 20, 5, 100, False, "direct")),
    "an extend with state": ("file.write_block=28@3", ("extend", "failing", 20, 2, 100, True, "w")),
    "no space for the next segment": ("file.allocate=28@0", ("append", "failing", 400, 100, "w")),
    "no space once": ("file.allocate=28@2", ("append", "failing", 400, 100, "w")),
    "a quota": ("file.allocate=122@0", ("extend", "failing", 100, 5, 100, False, "w")),
    "a segment that cannot be renamed": ("file.rename=5@1", ("append", "failing", 400, 100, "w")),
    "a renamed segment that fails": ("roll.renamed=5@1", ("append", "failing", 400, 100, "w")),
    "a header that cannot be written": ("file.write=28@0", ("append", "failing", 400, 100, "w")),
    "a value of its own segment": ("file.write=28@1", ("append", "failing", 5, 6000, "w")),
    "a value of its own segment, renamed": ("roll.renamed=28@1", ("append", "failing", 5, 6000, "w")),
}


@pytest.mark.parametrize(("failpoint", "call"), CASES.values(), ids=CASES)
def test_nothing_of_a_failed_append_is_readable(child, tmp_path, raised_by, failpoint, call):
    """Appending goes on."""
    path = tmp_path / "j"
    child.call("arm", failpoint)
    error = raises_if_visited(child, *call)
    child.call("arm", "")
    if error is None:
        assert failpoint == "file.allocate=28@2"  # where a whole segment fails, as much as is needed will do
        check_units(path, child.acknowledged)
        return
    assert error.kind in ("OSError", "PermissionError")
    assert error.errno == int(failpoint.partition("=")[2].partition("@")[0])
    assert error.filename
    assert error.filename.startswith(str(path))
    before = check_units(path, child.acknowledged)
    tried = [part_of(value).unit for _, value in before if part_of(value).writer == "failing"]
    acknowledged = [unit.unit for unit in child.acknowledged if unit.writer == "failing"]
    assert sorted(set(tried)) == acknowledged
    child.call("work", "w", 8, "direct")
    assert check_units(path, child.acknowledged)[: len(before)] == before


def test_a_failed_extend_with_state_stores_none_of_it(child, tmp_path, raised_by):
    """The next roll works."""
    path = tmp_path / "j"
    child.call("extend", "w", 1, 2, 100, True)
    before = jlog.Journal(path).state()
    fails(child, raised_by, "file.write_block=28@1", "extend", "w", 1, 2, 100, True)
    assert jlog.Journal(path).state() == before
    child.call("roll", "w")
    assert jlog.Journal(path).state() == before
    child.call("extend", "w", 1, 2, 100, True)
    check_units(path, child.acknowledged)


def test_a_new_segment_that_keeps_its_old_name_too_is_taken(child, tmp_path):
    """The file system cannot rename without replacing, and the old name cannot be removed either."""
    path = tmp_path / "j"
    child.call("append", "w", 3, 100)
    child.call("arm", "file.renameat2=22@0,file.unlink=5@0")
    child.call("roll", "w")
    child.call("arm", "")
    child.call("append", "w", 3, 100)
    child.call("roll", "w")
    child.call("append", "w", 3, 100)
    check_units(path, child.acknowledged)
    child.call("close", "w")
    child.call("close", "direct")
    with jlog.Writer(path):
        assert list(path.glob("next.*")) == []
    check_units(path, child.acknowledged)


def test_a_failed_append_fails_for_nobody_else(child, spawn, tmp_path, raised_by):
    other = spawn()
    other.call("open_writer", "other", str(tmp_path / "j"), {})
    fails(child, raised_by, "file.write_block=28@0", "append", "failing", 200, 100, "w")
    other.call("work", "other", 8)
    child.call("work", "w", 8)
    check_units(tmp_path / "j", child.acknowledged + other.acknowledged)


@pytest.mark.parametrize("call", [("flush", "w"), ("roll", "w"), ("sync", "w")])
def test_a_flush_that_failed_can_be_made_again(child, tmp_path, raised_by, call):
    error = fails(child, raised_by, "file.write_block=28@1", *call)
    assert error.errno == errno.ENOSPC
    check_units(tmp_path / "j", child.acknowledged)
    child.call(*call)
    child.call("append", "w", 3, 100)
    check_units(tmp_path / "j", child.acknowledged)


def test_a_close_that_cannot_write_loses_nothing(child, tmp_path, raised_by):
    child.call("close", "direct")
    child.call("append", "w", 3, 100)
    error = fails(child, raised_by, "file.write_block=28@1", "close", "w")
    assert error.errno == errno.ENOSPC
    check_units(tmp_path / "j", child.acknowledged)
    child.call("open_writer", "w", str(tmp_path / "j"), {})
    child.call("append", "w", 3, 100)
    check_units(tmp_path / "j", child.acknowledged)
    assert not jlog.Journal(tmp_path / "j").gaps()


@pytest.mark.parametrize("name", ["file.read", "file.open", "file.sync", "file.sync_directory", "file.write", "file.allocate"])
@pytest.mark.parametrize("visit", [1, 2, 3])
def test_an_open_that_failed_leaves_the_journal_as_it_was(child, spawn, tmp_path, raised_by, name, visit):
    path, opener = tmp_path / "j", spawn()
    child.kill()
    opener.call("arm", f"{name}=5@{visit}")
    error = raises_if_visited(opener, "open_writer", "x", str(path), {"precommit": 64 << 10})
    if error is not None:
        assert (error.errno, error.filename[: len(str(path))]) == (errno.EIO, str(path)), error
    check_units(path, child.acknowledged)
    opener.call("arm", "")
    opener.call("open_writer", "y", str(path), {})
    opener.call("append", "y", 3)
    check_units(path, child.acknowledged + opener.acknowledged)


@pytest.mark.parametrize("error", [errno.EINTR, errno.EOPNOTSUPP, errno.ENOSYS])
def test_zeros_are_written_where_space_cannot_be_reserved(spawn, tmp_path, error):
    """Signals that come again and again keep nobody at it."""
    path, child = tmp_path / "j", spawn(f"file.fallocate={error}@0")
    child.call("open_writer", "w", str(path), OPTIONS)
    child.call("open_writer", "direct", str(path), {"precommit": 0})
    child.call("work", "w", 12, "direct")
    check_units(path, child.acknowledged)
    assert len(jlog.Journal(path).segments()) > 1


# --- fdatasync ---------------------------------------------------------------------------------------------------


def test_a_failed_sync_sticks_until_all_writers_have_closed(child, spawn, tmp_path, raised_by):
    path, other = tmp_path / "j", spawn()
    other.call("open_writer", "x", str(path), {})
    error = fails(child, raised_by, "file.sync=5@1", "sync", "w")
    assert (error.errno, error.filename) == (errno.EIO, str(path))
    for process, name in ((child, "w"), (child, "direct"), (other, "x")):
        for call in ("append", "extend", "flush", "sync", "roll"):
            assert raised_by(process, call, name).errno == errno.EIO, (call, name)
    before = check_units(path, child.acknowledged)  # what was appended is readable
    late = spawn()
    late.call("open_writer", "late", str(path), {})
    assert raised_by(late, "append", "late").errno == errno.EIO
    for process, name in ((child, "w"), (child, "direct"), (other, "x"), (late, "late")):
        process.call("close", name)
    other.call("open_writer", "x", str(path), {})
    other.call("append", "again", 3, 0, "x")
    other.call("sync", "x")
    records = check_units(path, child.acknowledged + other.acknowledged)
    assert records[: len(before)] == before


def test_a_failed_sync_outlives_the_death_of_its_process(child, spawn, tmp_path, raised_by):
    path, other = tmp_path / "j", spawn()
    other.call("open_writer", "x", str(path), {})
    fails(child, raised_by, "file.sync=5@1", "sync", "w")
    child.kill()
    assert raised_by(other, "append", "x").errno == errno.EIO
    other.kill()
    child = spawn()
    child.call("open_writer", "y", str(path), {})
    child.call("append", "y", 3)
    child.call("sync", "y")
    assert len(read_all(path)) == 6


def test_a_failed_sync_of_the_directory_sticks_too(child, tmp_path, raised_by):
    child.call("roll", "w")
    error = fails(child, raised_by, "file.sync_directory=5@1", "sync", "w")
    assert error.errno == errno.EIO
    assert raised_by(child, "append", "w").errno == errno.EIO
    check_units(tmp_path / "j", child.acknowledged)


@pytest.mark.parametrize("visit", [1, 2, 3])
def test_a_killed_rewrite_after_a_failed_sync_is_done_again(child, spawn, tmp_path, raised_by, visit):
    path, opener = tmp_path / "j", spawn()
    child.call("work", "w", 6)
    fails(child, raised_by, "file.sync=5@1", "sync", "w")
    child.kill()
    opener.call("arm", f"file.sync=kill@{visit}")
    opener.may_die("open_writer", "x", str(path), {})
    opener.kill()
    with jlog.Writer(path) as writer:
        writer.sync()
    check_units(path, child.acknowledged)
