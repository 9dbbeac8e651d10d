"""A journal is its directory, and not the path: what happens when the two part."""

import asyncio
import copy
import gc
import os
import pickle
import shutil
import time
from contextlib import nullcontext, suppress
from itertools import count

import pytest

import exhaustive
import jlog
from behaviour.journals import SMALL, fill, values
from crash.tampering import change
from elsewhere import python
from faults.moments import Moments
from jlog._core.system.lock import Deadline
from jlog.storage.attaching import attached

KEEP = jlog.Retention(delete_read=False)


def content(path):
    """Names and bytes of all files below a directory."""
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def other(tmp_path):
    """Another journal, closed, with segments of the names that the first one's will have."""
    with jlog.Writer(tmp_path / "other", retention=KEEP, **SMALL) as writer:
        fill(writer, 500)
    return tmp_path / "other"


def rename(path, other):
    path.rename(path.with_name("away"))
    other.rename(path)
    return path.with_name("away")


def relink(path, other):
    """The path is a link, which is changed."""
    os.unlink(path)
    path.symlink_to(other)
    return path.with_name("real")


def restore(path, other):
    """Removed below its owner, and another one restored from a copy."""
    shutil.rmtree(path)
    shutil.copytree(other, path)


def restore_in_place(path, other):
    """The files in the directory are replaced, and the directory stays."""
    for file in list(path.iterdir()):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copytree(other, path, dirs_exist_ok=True)


def remove(path, _other):
    shutil.rmtree(path)


MOVES = [rename, relink, restore, restore_in_place, remove]


@pytest.fixture(params=MOVES, ids=[move.__name__ for move in MOVES])
def move(request, tmp_path):
    """Moves the journal away; returns where it is afterwards, if anywhere."""
    if request.param is relink:
        (tmp_path / "real").mkdir()
        (tmp_path / "j").symlink_to(tmp_path / "real")
    return request.param


CALLS = {
    "sync": lambda writer: writer.sync(),
    "roll": lambda writer: writer.roll(),
    "close": lambda writer: writer.close(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_writer_tells_that_its_journal_was_moved_and_leaves_the_other_one_alone(path, other, move, call):
    writer = jlog.Writer(path, retention=KEEP, **SMALL)
    written = fill(writer, 95)  # the segment is nearly full
    moved_to = move(path, other)
    before = content(path) if path.exists() else None
    with pytest.raises(jlog.JournalMoved, match=f"{path}.* open it again"):
        call(writer)
    assert str(path) in repr(writer)
    for late in (lambda: writer.append(b"late"), lambda: writer.extend([b"late"]), writer.flush, writer.sync, writer.roll):
        with pytest.raises((jlog.JournalMoved, jlog.JournalClosed)):
            late()
    with nullcontext() if call is CALLS["close"] else pytest.raises(jlog.JournalMoved):
        writer.close()
    assert before == (content(path) if path.exists() else None)
    if moved_to is not None:
        assert values(moved_to)[: len(written)] == written
        assert jlog.Journal(moved_to).verify().ok


def append_until_told(writer, value, pause=0.0):
    """Returns how many appends were acknowledged. pause: seconds between two of them."""
    for appended in count():
        try:
            writer.append(value)
        except jlog.JournalMoved:
            return appended
        time.sleep(pause)
    raise AssertionError


def test_appends_that_fill_segments_touch_nothing_of_the_other_journal(path, other, move):
    """No call has looked yet when the next segment is due."""
    writer = jlog.Writer(path, retention=KEEP, **SMALL)
    fill(writer, 20)
    moved_to = move(path, other)
    before = content(path) if path.exists() else None
    acknowledged = 20 + append_until_told(writer, b"x" * 100)
    with pytest.raises(jlog.JournalMoved):
        writer.close()
    assert before == (content(path) if path.exists() else None)
    if moved_to is not None:
        assert len(values(moved_to)) == acknowledged


@pytest.mark.parametrize("move", [restore_in_place, *map(exhaustive.only, (rename, restore, remove))])
def test_a_journal_that_is_moved_at_any_moment_of_a_roll_leaves_the_other_one_alone(tmp_path, move):
    at, struck = 1, True
    while struck:
        folder = tmp_path / str(at)
        path, other = folder / "j", folder / "other"
        jlog.Writer(other, retention=KEEP).close()
        before = content(other) if move is not remove else {}
        writer = jlog.Writer(path, retention=KEEP, **SMALL)
        fill(writer, 20)
        moments = Moments(at, lambda path=path, other=other: move(path, other))
        with suppress(jlog.JournalMoved):
            moments.during(writer.roll)
        struck = moments.struck is not None
        if struck:
            with pytest.raises(jlog.JournalMoved):
                writer.close()
            assert content(path) == before, moments.struck
        writer.close()
        shutil.rmtree(folder)
        at += exhaustive.count(17, 1)
    assert at > 100


def test_appends_end_within_the_next_check(path, other, move):
    writer = jlog.Writer(path)
    writer.append(b"before")
    move(path, other)
    append_until_told(writer, b"", pause=0.001)  # they fit into the buffer for longer than the maintenance thread sleeps
    with pytest.raises(jlog.JournalMoved):
        writer.close()


def test_the_path_can_be_opened_again_before_the_old_writer_is_closed(path, other):
    writer = jlog.Writer(path)
    writer.append(b"mine")
    away = rename(path, other)
    with jlog.Writer(path) as new:
        assert new.append(b"there") == 500
    with jlog.Writer(away, retention=KEEP) as again:
        assert again.append(b"here") == 1
    with pytest.raises(jlog.JournalMoved):
        writer.close()
    assert values(away) == [b"mine", b"here"]
    assert values(path)[500:] == [b"there"]


@pytest.mark.parametrize("live", [False, True], ids=["closed", "written to"])
def test_a_follower_tells_that_its_journal_was_made_anew(path, live):
    with jlog.Writer(path) as writer:
        writer.append(b"old")
    reader = jlog.Reader(path, start="end")
    keep = None
    if live:
        keep = jlog.Writer(path)
        next(reader.follow(timeout=0), None)
    shutil.rmtree(path)
    with jlog.Writer(path) as writer:
        writer.append(b"new")
        with pytest.raises(jlog.JournalMoved, match="another journal"):
            next(reader.follow())
        for call in (lambda: reader.read(timeout=0), lambda: list(reader), lambda: reader.lag):
            with pytest.raises(jlog.JournalMoved):
                call()
        with jlog.Reader(path) as again:
            assert list(again.values()) == [b"new"]
    if keep is not None:
        with pytest.raises(jlog.JournalMoved):
            keep.close()


def test_a_coroutine_that_follows_is_told_too(path):
    async def follow():
        jlog.Writer(path).close()
        with jlog.Reader(path) as reader:
            task = asyncio.ensure_future(anext_of(reader.follow_async()))
            await asyncio.sleep(0)
            jlog.Journal.delete(path)
            jlog.Writer(path).close()
            with pytest.raises(jlog.JournalMoved):
                await task

    asyncio.run(follow())


async def anext_of(iterator):
    async for record in iterator:
        return record
    return None


def test_a_commit_goes_to_the_readers_own_journal_and_tells(path, other):
    with jlog.Writer(path) as writer:
        writer.extend([b"a", b"b"])
    reader = jlog.Reader(path, "billing")
    assert len(list(reader)) == 2
    away = rename(path, other)
    before = content(path)
    for durable in (False, True):
        with pytest.raises(jlog.JournalMoved):
            reader.commit(durable=durable)
    reader.close()
    assert content(path) == before
    assert jlog.Journal(away).subscribers()["billing"].sequence == 2


def test_a_closed_reader_holds_no_directory(path):
    jlog.Writer(path).close()
    reader = jlog.Reader(path, "billing")
    reader.close()
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    assert str(path) not in held


def test_a_process_that_may_not_look_at_the_path_any_more_goes_on(path):
    """A daemon opens its journal as root and gives up its rights."""
    with jlog.Writer(path) as writer:
        writer.append(b"before")
        if os.geteuid() == 0:
            path.parent.chmod(0o700)
            os.seteuid(65534)
        try:
            writer.sync()
            assert writer.append(b"after") == 1
        finally:
            os.seteuid(os.getuid())


DROPS = """
import gc, shutil, sys, jlog
path = sys.argv[1]
writer = jlog.Writer(path)
writer.append(b"value")
shutil.rmtree(path)
del writer
gc.collect()
"""


def test_a_writer_that_is_dropped_without_its_journal_prints_no_traceback(path):
    done = python(DROPS, path)
    assert (done.returncode, "Traceback" in done.stderr, "Exception ignored" in done.stderr) == (0, False, False), done.stderr


# --- Descriptors that the program closes --------------------------------------------------------------------------

CLOSES_ALL = """
import os, sys, jlog
directory, keeps = sys.argv[1], []
writer = jlog.Writer(directory + "/journal", segment_bytes=4096, precommit=4096)
reader = jlog.Reader(directory + "/journal", "billing")
writer.append(b"before")
next(iter(reader))
os.closerange(3, 256)
keeps = [os.open(f"{directory}/file{number}", os.O_RDWR | os.O_CREAT) for number in range(30)]
for fd in keeps:
    os.write(fd, b"mine")
told = set()
appends = [lambda: writer.append(b"after" * 12)] * 300
for call in [*appends, writer.sync, writer.roll, reader.commit, reader.close, writer.close]:
    try:
        call()
    except jlog.JournalError as error:
        told.add(type(error).__name__)
for fd in keeps:
    os.write(fd, b"")  # it was not closed either
print(*told)
"""


def test_a_program_that_closes_every_descriptor_gets_an_error_and_nothing_in_its_own_files(tmp_path):
    done = python(CLOSES_ALL, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "JournalClosed\n", "")
    assert {(tmp_path / f"file{number}").read_bytes() for number in range(30)} == {b"mine"}
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"again")
    found = values(tmp_path / "journal")
    assert (found[0], found[-1]) == (b"before", b"again")


# --- Who may write ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as only root can give files away; run the tests as root")
def test_files_that_root_creates_belong_to_the_directorys_owner(path):
    jlog.Writer(path, retention=KEEP, **SMALL).close()
    shutil.rmtree(path / "checkpoints")
    (path / "checkpoints").mkdir()
    for file in [path, *path.rglob("*")]:
        os.chown(file, 65534, 65534)
    path.chmod(0o700)
    with jlog.Writer(path, sync="append") as writer:
        fill(writer, 100)
        writer.roll()
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    journal.set_checkpoint("before", 3)
    for file in path.rglob("*"):
        found = file.stat()
        assert (file.name, found.st_uid, found.st_gid) == (file.name, 65534, 65534)
        assert found.st_mode & 0o600 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user; run the tests as root")
def test_a_reader_that_may_not_read_the_buffer_is_told(path):
    with jlog.Writer(path) as writer:
        writer.append(b"value")
        for directory in (path, *list(path.parents)[:4]):
            directory.chmod(0o755)
        for file in path.iterdir():
            file.chmod(0o755 if file.is_dir() else 0o644)
        (path / "precommit").chmod(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(PermissionError, match="precommit"):
                jlog.Reader(path)
        finally:
            os.seteuid(0)


def test_a_call_that_takes_part_for_a_moment_uses_the_directory_that_it_has_opened(path, other):
    jlog.Writer(path).close()
    with attached(str(path), Deadline(None)) as attachment:
        rename(path, other)
        before = content(path)
        with pytest.raises(jlog.JournalMoved):
            attachment.sync()
    assert content(path) == before


@pytest.mark.damage
def test_a_copy_of_an_error_of_a_reader_does_not_close_the_directory_that_the_reader_holds(path):
    with jlog.Writer(path, segment_bytes=4096) as writer:
        writer.extend([bytes(100)] * 200)
        writer.extend([bytes(100)] * 200)
    segment = jlog.Journal(path).segments()[0]
    change(segment.path, 600, b"\xff")
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.CorruptJournal) as caught:
            list(reader.values())
        for copied in (copy.deepcopy(caught.value.path), pickle.loads(pickle.dumps(caught.value)).path):
            assert type(copied) is str
            del copied
        gc.collect()
        reader.skip_damage()
        assert list(reader.values())
