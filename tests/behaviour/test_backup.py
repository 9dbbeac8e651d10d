"""A backup is a journal of its own, holds all that was appended before it was begun, and disturbs nobody."""

import os
import shutil
from pathlib import Path

import pytest

import jlog
import oracle
from behaviour.journals import SMALL, fill, read_away, records, sequences, value_of, values
from crash.tampering import change
from elsewhere import ANOTHER_USER, mounted_by, read_only, run_python, small_disk


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copy"


def test_a_copy_holds_all_records_though_the_writer_goes_on(path, writer, target):
    expected = fill(writer, 105)
    writer.extend([b"with state"], state={b"k": b"v"})
    writer.append(None, key=b"key", headers=[("name", None)], timestamp_us=7)
    before = records(path)
    copy = jlog.Journal(path).backup(target)
    fill(writer, 100)
    assert copy.path == str(target)
    assert values(target)[:105] == expected
    assert records(target) == before
    assert copy.state() == {b"k": b"v"}
    assert (len(copy), copy.next_sequence, copy.verify().ok) == (107, 107, True)
    assert [segment.first_sequence for segment in copy.segments()] == [
        segment.first_sequence for segment in jlog.Journal(path).segments() if segment.first_sequence < 107
    ]


def test_records_only_in_the_buffer_are_in_it(path, target):
    with jlog.Writer(path) as writer:
        fill(writer, 3)
        jlog.Journal(path).backup(target)
        assert values(target) == [value_of(number) for number in range(3)]


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"precommit": 0}])
def test_a_closed_journal_is_copied_too(path, target, options):
    with jlog.Writer(path, **{**SMALL, **options}) as writer:
        expected = fill(writer, 100)
    jlog.Journal(path).backup(target)
    assert values(target) == expected


def test_an_empty_journal_has_one(path, target):
    jlog.Journal.create(path)
    assert len(jlog.Journal(path).backup(target)) == 0
    with jlog.Writer(target) as writer:
        assert writer.append(b"x") == 0


def test_subscribers_and_checkpoints_are_in_it(path, writer, target):
    fill(writer, 100)
    read_away(path, "billing", 20)
    read_away(path, "shipping", 100)
    jlog.Journal(path).set_checkpoint("ten", 20)
    copy = jlog.Journal(path).backup(target)
    original = jlog.Journal(path)
    for ours, theirs in (
        (copy.subscribers(), original.subscribers()),
        (copy.checkpoints(), original.checkpoints()),
    ):
        assert {name: (at.sequence, at.lag, at.moved_us) for name, at in ours.items()} == {
            name: (at.sequence, at.lag, at.moved_us) for name, at in theirs.items()
        }
    with jlog.Reader(target, "billing") as reader:
        assert sequences(reader) == list(range(20, 100))


def test_a_position_whose_copies_are_damaged_stays_damaged(path, writer, target):
    fill(writer, 10)
    jlog.Journal(path).add_subscriber("billing", 5)
    (path / "subscribers" / "billing").write_bytes(b"x" * 8192)
    copy = jlog.Journal(path).backup(target)
    assert copy.subscribers()["billing"].damaged
    for journal in (path, target):
        jlog.Journal(journal).set_subscriber("billing", 5)


def test_records_removed_by_retention_are_not_in_it(path, writer, target):
    fill(writer, 100)
    read_away(path, "billing", 60)
    first = jlog.Journal(path).first_sequence
    assert first > 0
    copy = jlog.Journal(path).backup(target)
    assert copy.first_sequence == first
    assert [record.sequence for record in records(target)] == list(range(first, 100))


def test_the_copy_goes_its_own_way_under_a_new_epoch(path, writer, target):
    fill(writer, 10)
    jlog.Journal(path).backup(target)
    assert oracle.read_meta(str(target))["epochs"] == oracle.read_meta(str(path))["epochs"]
    with jlog.Writer(target) as other:
        assert other.append(b"only here") == 10
    writer.append(b"only there")
    assert (values(target)[10:], values(path)[10:]) == ([b"only here"], [b"only there"])
    ours, theirs = (oracle.read_meta(str(journal))["epochs"] for journal in (target, path))
    assert ours[:-1] == theirs
    assert ours[-1]["first_sequence"] == 10
    assert jlog.Journal(target).uuid == jlog.Journal(path).uuid


def test_a_copy_of_a_copy_restores(path, writer, target, tmp_path):
    expected = fill(writer, 100)
    read_away(path, "billing", 30)
    jlog.Journal(path).backup(target)
    writer.close()
    shutil.rmtree(path)
    jlog.Journal(target).backup(path)
    assert values(path, start=30) == expected[30:]
    with jlog.Writer(path) as restored:
        assert restored.append(b"x") == 100


def test_a_hole_stays_one(path, target):
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        writer.sync()
        shutil.copytree(path, path.with_name("lost power"))
    lost = path.with_name("lost power")
    with jlog.Writer(lost) as writer:
        fill(writer, 5)
        copy = jlog.Journal(lost).backup(target)
        assert copy.gaps() == jlog.Journal(lost).gaps() != []
        assert len(copy) == 15


def test_progress_tells_the_bytes(path, writer, target):
    fill(writer, 200)
    writer.flush()
    told = []
    jlog.Journal(path).backup(target, progress=told.append)
    assert sum(told) == jlog.Journal(path).size_bytes


# --- Where it goes -----------------------------------------------------------------------------------------------


def test_missing_directories_above_are_made(path, writer, target):
    """A target that exists and is empty will do as well."""
    fill(writer, 10)
    target.mkdir()
    jlog.Journal(path).backup(target)
    jlog.Journal(path).backup(target.parent / "a" / "b" / "copy")
    assert len(records(target)) == len(records(target.parent / "a" / "b" / "copy")) == 10


def test_nothing_is_overwritten(path, writer, target):
    fill(writer, 10)
    journal = jlog.Journal(path)
    for make, message in (
        (lambda: target.write_bytes(b"mine"), "is a file"),
        (lambda: (target.mkdir(), (target / "notes").write_bytes(b"mine")), "other files"),
        (lambda: journal.backup(target), "is already a journal"),
    ):
        make()
        before = [target.read_bytes()] if target.is_file() else sorted(target.rglob("*"))
        with pytest.raises(jlog.JournalExists, match=message) as caught:
            journal.backup(target)
        assert caught.value.filename == str(target)
        assert before == ([target.read_bytes()] if target.is_file() else sorted(target.rglob("*")))
        if target.is_file():
            target.unlink()
        elif message == "other files":
            shutil.rmtree(target)
    with pytest.raises(jlog.JournalExists):
        journal.backup(path)


@pytest.mark.parametrize("name", ["copy", "quarantine/copy"])
def test_a_backup_into_the_journal_itself_is_refused(path, writer, name, tmp_path):
    fill(writer, 10)
    (tmp_path / "link").symlink_to(path)
    before = sorted(path.rglob("*"))
    for target in (path / name, tmp_path / "link" / name):
        with pytest.raises(jlog.JournalError, match="itself; choose a path outside"):
            jlog.Journal(path).backup(target)
    assert sorted(path.rglob("*")) == before


def test_a_killed_backup_leaves_a_whole_journal_or_none(path, writer, target, spawn):
    """The next backup to the same directory is refused, and says what to do."""
    fill(writer, 200)
    child = spawn()
    step = 0
    while child.call("backup_and_die", str(path), str(target), step):
        if target.exists() and os.listdir(target):
            whole = "journal.meta" in os.listdir(target)
            if whole:
                assert values(target) == values(path)
            else:
                with pytest.raises(jlog.JournalNotFound):
                    jlog.Journal(target)
                with pytest.raises(jlog.JournalError):
                    jlog.Writer(target)
            with pytest.raises(jlog.JournalExists, match="is already a journal" if whole else "remove the directory"):
                jlog.Journal(path).backup(target)
            shutil.rmtree(target)
        step += 1
    assert step > 10
    assert values(target) == values(path)
    read_away(path, "billing")  # nothing that was killed keeps retention away
    assert jlog.Journal(path).first_sequence > 0


def test_a_full_disk_leaves_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    run_python(
        f"""
        with jlog.Writer({str(tmp_path / "j")!r}, **SMALL) as writer:
            fill(writer, 5000)
            try:
                jlog.Journal(writer.path).backup({str(disk / "copy")!r})
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
            else:
                raise AssertionError("there was space")
        assert os.listdir({str(disk)!r}) == []
        """,
        within=mounted_by(small_disk(disk, "256k")),
    )


def test_a_backup_raises_its_error_though_cleaning_up_fails(path, writer, target):
    fill(writer, 100)

    def remove_the_copy(_):
        shutil.rmtree(target)
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        jlog.Journal(path).backup(target, progress=remove_the_copy)


def test_onto_another_file_system_and_from_a_read_only_one(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    path, copy = tmp_path / "j", tmp_path / "copy"
    with jlog.Writer(path, **SMALL) as writer:
        expected = fill(writer, 500)
    run_python(
        f"""
        import shutil
        jlog.Journal({str(path)!r}).backup({str(disk / "copy")!r})
        assert jlog.Journal({str(disk / "copy")!r}).verify().ok
        shutil.copytree({str(disk / "copy")!r}, {str(copy)!r})
        """,
        within=mounted_by(small_disk(disk, "8m") + " && " + read_only(path)),
    )
    assert values(copy) == expected


def test_a_copy_is_as_open_to_others_as_the_journal(path, writer, target):
    fill(writer, 10)
    for mode in (0o700, 0o2770):
        path.chmod(mode)
        copy = Path(jlog.Journal(path).backup(f"{target}{mode}").path)
        assert copy.stat().st_mode & 0o7777 == mode
        assert all(file.stat().st_mode & 0o666 == mode & 0o666 for file in copy.rglob("*"))


def test_a_process_that_may_only_read_may_copy(tmp_path):
    import tempfile

    with tempfile.TemporaryDirectory(prefix="jlog-test-") as folder:
        os.chmod(folder, 0o755)
        path, target = Path(folder) / "j", Path(folder) / "open"
        with jlog.Writer(path, **SMALL) as writer:
            expected = fill(writer, 100)
            target.mkdir()
            target.chmod(0o777)
            for file in [path, *path.rglob("*")]:
                file.chmod(0o555 if file.is_dir() else 0o444)
            run_python(f"jlog.Journal({str(path)!r}).backup({str(target)!r})", within=ANOTHER_USER)
            assert values(target) == expected
            for file in [path, *path.rglob("*")]:
                file.chmod(0o755 if file.is_dir() else 0o644)


# --- Damage ------------------------------------------------------------------------------------------------------


@pytest.mark.damage
def test_damage_is_copied_as_it_is(path, target):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
    segments = jlog.Journal(path).segments()
    change(segments[1].path, 300, b"damage")
    change(segments[2].path, 0, b"a header")
    found, copied = (jlog.Journal(journal).verify() for journal in (path, jlog.Journal(path).backup(target).path))
    assert copied.records == found.records
    assert [(os.path.basename(at.path), at.offset) for at in copied.damage] == [
        (os.path.basename(at.path), at.offset) for at in found.damage
    ]
    assert jlog.Journal(target).repair().ok


@pytest.mark.damage
def test_without_bounds_there_is_no_copy(path, target):
    with jlog.Writer(path) as writer:
        fill(writer, 3)
    (path / "bounds").write_bytes(bytes(4224))
    with pytest.raises(jlog.CorruptJournal, match="repair"):
        jlog.Journal(path).backup(target)
    assert not target.exists()


# --- Beside others -----------------------------------------------------------------------------------------------

SLOW = """
from jlog.care import backup
def stop(path, *rest, copying=backup._copy_segment):
    os.write(1, b"at work")
    sys.stdin.read(1)
    copying(path, *rest)
backup._copy_segment = stop
jlog.Journal({path!r}).backup({target!r})
"""


@pytest.fixture
def backup_at_work(path, writer, target):
    """Another process has begun to copy, and goes on when it is told."""
    import subprocess
    import sys

    from elsewhere import PRELUDE, TESTS

    fill(writer, 100)
    jlog.Journal(path).add_subscriber("billing")
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + SLOW.format(path=str(path), target=str(target))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
    )
    assert process.stdout.read(7) == b"at work"
    yield process
    process.kill()
    process.communicate()


def test_nothing_is_removed_under_it_and_nobody_waits(path, writer, target, backup_at_work):
    journal = jlog.Journal(path)
    assert read_away(path, "billing", 100) == 100
    fill(writer, 100)
    writer.roll()
    journal.set_checkpoint("c", 150)
    journal.remove_checkpoint("c")
    assert journal.first_sequence == 0
    with pytest.raises(jlog.JournalLocked, match="backup"):
        journal.clean()
    writer.close()
    with pytest.raises(jlog.JournalLocked, match="backup"):
        journal.delete(path)
    with pytest.raises(jlog.JournalLocked, match="backup"):
        journal.repair()
    backup_at_work.communicate(b"go on" * 100)
    assert backup_at_work.returncode == 0
    assert values(target) == [value_of(number) for number in range(100)]
    assert jlog.Journal(target).subscribers()["billing"].sequence == 0
    assert journal.clean()[0].first_sequence == 0


def test_a_killed_one_keeps_nothing_from_being_removed(path, writer, backup_at_work):
    assert read_away(path, "billing", 100) == 100
    assert jlog.Journal(path).first_sequence == 0
    backup_at_work.kill()
    backup_at_work.wait()
    assert jlog.Journal(path).clean()
    assert jlog.Journal(path).first_sequence > 0
