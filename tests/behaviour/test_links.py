"""Symbolic links that somebody has put into a journal's directory: no way to another file."""

import os
import shutil
from contextlib import contextmanager

import pytest

import jlog
from behaviour.journals import SMALL, read_away
from crash.tampering import change, copy, flip, zero
from jlog.errors import JournalError

SEGMENT = f"{0:020d}.seg"


@pytest.fixture
def path(tmp_path):
    """A journal of two segments in a directory that several users share."""
    path = tmp_path / "j"
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        writer.extend([b"%d" % number for number in range(10)])
        writer.sync()
        writer.roll()
        writer.append(b"10")
        writer.sync()
    with jlog.Reader(path, "billing") as reader:
        reader.read(3)
        reader.commit()
    path.chmod(0o2775)
    return path


@contextmanager
def linked(path, name, content=b"another user's file"):
    """A link at `name` to a file elsewhere, which nothing is done to meanwhile."""
    victim = path.parent / "victim"
    victim.write_bytes(content)
    victim.chmod(0o600)
    (path / name).symlink_to(victim)
    before = os.stat(victim)
    yield victim
    after = os.stat(victim)
    assert victim.read_bytes() == content
    assert (after.st_mode, after.st_uid, after.st_gid, after.st_nlink, after.st_size) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
        before.st_nlink,
        before.st_size,
    )


def records(path):
    with jlog.Reader(path) as reader:
        return [record.value for record in reader.read(1000)]


RECORDS = [b"%d" % number for number in range(11)]


# --- Copies by hard links --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["journal.meta", "lock", "bounds", "precommit"])
def test_a_copy_by_hard_links_takes_no_writer(tmp_path, name):
    """It shares its files with the original: a writer of the one would destroy the other. Reading goes on."""
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        writer.extend(RECORDS)
    os.link(path / name, tmp_path / "second")
    with pytest.raises(jlog.JournalError, match=f"{name} has 2 names"):
        jlog.Writer(path)
    assert records(path) == RECORDS
    (tmp_path / "second").unlink()
    with jlog.Writer(path) as writer:
        assert writer.append(b"after") == len(RECORDS)


# --- Names of files that are being made ------------------------------------------------------------------------------


def test_new_options_are_not_written_through_a_link(path):
    with linked(path, ".journal.meta"):
        jlog.Writer(path, sync="append").close()
        assert jlog.Journal(path).options.sync == "append"
        assert not (path / "journal.meta").is_symlink()


def test_the_next_segment_is_not_written_through_a_link(path):
    """Neither is its index."""
    with jlog.Writer(path) as writer, linked(path, "next.0.1"), linked(path, f"next.0.{10}.idx"):
        writer.roll()
        writer.append(b"11")
    assert records(path) == [*RECORDS, b"11"]
    assert not any(file.is_symlink() for file in path.glob("*.seg"))
    assert not any(file.is_symlink() for file in path.glob("*.idx"))


def test_an_index_takes_the_place_of_a_link(path):
    with jlog.Writer(path) as writer, linked(path, f"{10:020d}.idx"):
        writer.roll()
        writer.append(b"11")
    assert not (path / f"{10:020d}.idx").is_symlink()


def test_a_new_subscriber_is_not_written_through_a_link(path):
    with linked(path, f"subscribers/.{os.getpid()}.new"):
        jlog.Reader(path, "audit").close()
    assert sorted(jlog.Journal(path).subscribers()) == ["audit", "billing"]


def test_a_recovery_does_not_write_through_a_link(path, tmp_path):
    with jlog.Writer(path) as writer:
        writer.append(b"lost")
        lost = copy(path, tmp_path / "lost")
    zero(lost / "precommit")
    with linked(lost, "next.recovery"):
        jlog.Writer(lost).close()
    assert records(lost) == RECORDS


def test_repair_does_not_write_through_a_link(path):
    flip(path / SEGMENT, 300, 0)
    zero(path / "bounds")
    with linked(path, "next.repair"):
        assert jlog.Journal(path).repair().ok
    assert not any(file.is_symlink() for file in path.iterdir())


# --- Names of files that are there ---------------------------------------------------------------------------------


def write(path):
    with jlog.Writer(path) as writer:
        writer.append(b"11")
        writer.roll()


def subscribe(path):
    with jlog.Reader(path, "billing") as reader:
        reader.read(1)
        reader.commit()


def subscribe_anew(path):
    jlog.Reader(path, "audit").close()


def repair(path):
    jlog.Journal(path).repair()


@pytest.mark.damage
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("lock", write),
        ("bounds", write),
        ("precommit", write),
        ("journal.meta", write),
        (f"{10:020d}.seg", write),
        ("lock", repair),
        ("bounds", repair),
        ("precommit", repair),
        ("journal.meta", repair),
        (SEGMENT, repair),
        ("subscribers/billing", subscribe),
        ("subscribers/billing", repair),
    ],
)
def test_a_link_is_refused_even_with_the_right_bytes_behind_it(path, name, use):
    flip(path / SEGMENT, 300, 0)
    content = (path / name).read_bytes()
    (path / name).unlink()
    with linked(path, name, content):
        with pytest.raises((JournalError, OSError), match="symbolic link"):
            use(path)


@pytest.mark.damage
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("subscribers", subscribe),
        ("subscribers", subscribe_anew),
        ("subscribers", repair),
        ("checkpoints", repair),
    ],
)
def test_a_directory_that_is_a_link_is_refused(path, name, use):
    elsewhere = path.parent / "elsewhere"
    shutil.move(path / name, elsewhere)
    (path / name).symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir()), os.stat(elsewhere)
    with pytest.raises(JournalError, match="symbolic link"):
        use(path)
    assert (sorted(elsewhere.iterdir()), os.stat(elsewhere)) == before


@pytest.mark.parametrize("use", [write, repair])
def test_nothing_goes_into_a_quarantine_that_is_a_link(path, tmp_path, use):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (path / "quarantine").symlink_to(elsewhere)
    if use is repair:
        flip(path / SEGMENT, 300, 0)
    else:
        (path / "precommit").unlink()
        end = jlog.Journal(path).segments()[-1].size_bytes
        change(path / f"{10:020d}.seg", end, b"not synced")
    with pytest.raises(JournalError, match="symbolic link"):
        use(path)
    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o700
    (path / "quarantine").unlink()
    use(path)
    assert len(list((path / "quarantine").iterdir())) == 1


def test_a_buffer_is_not_made_through_a_link(tmp_path):
    journal = jlog.Journal.create(tmp_path / "j")
    for target in ("missing", "victim"):
        (tmp_path / "victim").touch(mode=0o600)
        (tmp_path / "j" / "precommit").symlink_to(tmp_path / target)
        with pytest.raises(JournalError, match="symbolic link"):
            jlog.Writer(journal.path)
        (tmp_path / "j" / "precommit").unlink()
    assert not (tmp_path / "missing").exists()
    assert (tmp_path / "victim").stat().st_size == 0
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o600
    jlog.Writer(journal.path).close()


# --- Copies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "next.backup",
        ".journal.meta",
        "journal.meta",
        "bounds",
        "lock",
        SEGMENT,
        "subscribers",
        "subscribers/billing",
    ],
)
def test_a_backup_is_not_written_through_a_link(path, tmp_path, monkeypatch, name):
    """Put there while it is at work."""
    target, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    target.mkdir(mode=0o777)
    elsewhere.mkdir(mode=0o700)
    missing = elsewhere / "missing"

    def plant(*_):
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).symlink_to(elsewhere if name == "subscribers" else missing)

    monkeypatch.setattr("jlog.care.backup._check_target", plant)
    try:
        jlog.Journal(path).backup(target)
    except (JournalError, FileExistsError):
        assert not (target / "journal.meta").exists()
    else:
        assert records(target) == RECORDS
    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def archived(path, tmp_path):
    """The URL of an archive of the journal."""
    url = (tmp_path / "archive").as_uri()
    jlog.Writer(path, retention=jlog.Retention(archive=url)).close()
    read_away(path, "billing")
    jlog.Journal(path).clean()
    assert jlog.Journal(path).first_sequence == 10
    return url


@pytest.mark.parametrize(
    "name",
    [
        f"{0:020d}.seg",
        f"{0:020d}.idx",
        f"{10:020d}.seg",
        "next.restore.idx",
        "next.recovery",
        ".journal.meta",
        "journal.meta",
        "bounds",
        "lock",
        "subscribers",
        "checkpoints",
    ],
)
def test_a_restored_journal_is_not_written_through_a_link(archived, tmp_path, monkeypatch, name):
    """Put into the directory in which it is made."""
    target, elsewhere = tmp_path / "back", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    make_directory = os.mkdir

    def plant(made, *arguments, **options):
        make_directory(made, *arguments, **options)
        if str(made).endswith(".restoring"):
            is_directory = name in ("subscribers", "checkpoints")
            os.symlink(elsewhere if is_directory else elsewhere / "missing", f"{made}/{name}")

    monkeypatch.setattr(os, "mkdir", plant)
    try:
        jlog.archive.restore(archived, target)
    except (JournalError, FileExistsError):
        assert not target.exists()
    else:
        assert records(target) == RECORDS[:10]
        assert not any(file.is_symlink() for file in target.iterdir())
    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o700


def test_an_upload_replaces_links_and_removes_links_to_its_parts(path, archived, tmp_path):
    (folder,) = (tmp_path / "archive").iterdir()
    with jlog.Writer(path) as writer:
        writer.append(b"11")
        writer.roll()
    read_away(path, "billing")
    begun = f".{10:020d}.seg.{0:016x}.part"
    with linked(folder, begun) as victim:
        (folder / f"{10:020d}.seg").symlink_to(victim)
        jlog.Journal(path).clean()
    with jlog.Reader(archived) as reader:
        assert list(reader.values()) == [*RECORDS, b"11"]
    assert not any(file.is_symlink() for file in folder.iterdir())
