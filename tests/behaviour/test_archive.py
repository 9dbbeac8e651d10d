"""Segments that retention removes are archived first, and can be read and restored from there."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

import jlog
import jlog.archive.local_copy
import oracle
from behaviour.journals import SMALL, fill, read_away, sequences, value_of, values
from crash.tampering import change
from jlog.archive.store import ArchiveFolder
from jlog.care.archive_loop import keep_archived
from jlog.care.cleaning import archive_and_clean
from patience import HUNG_SECONDS

URLS = ["file", "memory", pytest.param("s3", marks=pytest.mark.xdist_group("s3"))]


@pytest.fixture(params=URLS)
def url(request, tmp_path):
    """The URL of an empty archive."""
    if request.param == "file":
        return (tmp_path / "archive").as_uri()
    if request.param == "memory":
        return f"memory://{tmp_path}/archive"
    return f"{request.getfixturevalue('s3')}/{secrets.token_hex(8)}"


@pytest.fixture
def files(tmp_path):
    """The path of an archive on this machine."""
    return (tmp_path / "archive").as_uri()


@pytest.fixture
def make(path):
    """A journal of so many segments of ten records, and one record in the open one, all of it read."""
    writers = []

    def make(url, segments=5):
        writer = jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url))
        writers.append(writer)
        for _ in range(segments):
            fill(writer, 10)
            writer.roll()
        fill(writer, 1)
        read_away(path, "billing")
        return jlog.Journal(path)

    yield make
    for writer in writers:
        writer.close()


def archived_files(url):
    (folder,) = Path(url.removeprefix("file://")).iterdir()
    return folder


def all_values(records):
    return [value_of(number) for number in range(records)]


class CountingReader(jlog.Reader):
    """A user's own reader, with a state of its own."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.count = 0

    def next_value(self):
        self.count += 1
        return self.read(1)[0].value


def test_a_subclass_of_reader_reads_an_archive_too(make, files, path):
    make(files).clean()
    for reader in (CountingReader(files), CountingReader(path, archive=True)):
        with reader:
            assert (type(reader), isinstance(reader, jlog.Reader)) == (CountingReader, True)
            assert [reader.next_value(), reader.next_value(), reader.count] == [value_of(0), value_of(1), 2]


# --- Archiving ----------------------------------------------------------------------------------------------------


def test_commits_and_rolls_leave_what_clean_archives_and_removes(make, url):
    journal = make(url)
    assert journal.first_sequence == 0
    removed = journal.clean()
    assert [segment.first_sequence for segment in removed] == [0, 10, 20, 30, 40]
    assert (journal.first_sequence, len(journal.segments())) == (50, 1)
    assert values(url) == all_values(50)


def test_an_archived_segment_is_the_same_byte_for_byte(make, files):
    """Beside it lie its sequences and its size, its index, and journal.meta for the whole archive."""
    journal = make(files)
    before = {os.path.basename(s.path): Path(s.path).read_bytes()[: s.size_bytes] for s in journal.segments()[:-1]}
    journal.clean()
    folder = archived_files(files)
    assert folder.name == journal.uuid
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {name: content for name, content in found.items() if name.endswith(".seg")} == before
    beside = {name.replace("seg", kind) for name in before for kind in ("json", "idx")}
    assert set(found) - set(before) == {"archive.meta"} | beside
    said = json.loads(found[f"{10:020d}.json"])
    assert (said["first_sequence"], said["end_sequence"], said["previous_segment"]) == (10, 20, 0)
    assert said["size_bytes"] == len(before[f"{10:020d}.seg"])
    assert (folder / "archive.meta").read_bytes() == (Path(journal.path) / "journal.meta").read_bytes()


def test_the_rest_of_a_journal_goes_on_being_archived(make, url, path):
    journal = make(url)
    journal.clean()
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        writer.roll()
    read_away(path, "billing")
    assert [segment.first_sequence for segment in journal.clean()] == [50]
    assert values(url) == all_values(61)


def test_a_second_clean_has_nothing_to_do(make, url):
    journal = make(url)
    journal.clean()
    assert journal.clean() == []


def test_progress_tells_every_byte(make, url):
    journal = make(url)
    told = []
    removed = journal.clean(progress=told.append)
    assert sum(told) == sum(segment.size_bytes for segment in removed)


def test_a_dry_run_archives_nothing(make, files, tmp_path):
    assert len(make(files).clean(dry_run=True)) == 5
    assert not (tmp_path / "archive").exists()


def test_an_unsealed_segment_is_archived_without_preallocation(path, files):
    with jlog.Writer(path, segment_bytes=1 << 20, retention=jlog.Retention(archive=files)) as writer:
        fill(writer, 10)
        writer.roll()
        read_away(path, "billing")
        segment = jlog.Journal(path).segments()[0]
        os.truncate(segment.path, 1 << 20)  # as a process leaves it that was killed before it could seal
        jlog.Journal(path).clean()
    assert (archived_files(files) / os.path.basename(segment.path)).stat().st_size == segment.size_bytes
    assert values(files) == all_values(10)


# --- Where archiving fails ----------------------------------------------------------------------------------------


def refused(call, match):
    with pytest.raises(jlog.JournalError, match=match):
        call()


def test_a_place_that_cannot_be_written_is_named_and_all_stays(make, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    url = (tmp_path / "file" / "archive").as_uri()
    journal = make(url)
    refused(journal.clean, rf"{url}.*check that the place can be reached")
    assert journal.first_sequence == 0
    (tmp_path / "file").unlink()
    assert len(journal.clean()) == 5


@pytest.mark.xdist_group("s3")
def test_a_bucket_that_is_not_there_is_not_made(make, s3):
    journal = make("s3://no-such-bucket/x")
    refused(journal.clean, "s3://no-such-bucket/x.*bucket does not exist")
    assert journal.first_sequence == 0


def test_an_archive_inside_the_journal_is_refused(make, path):
    journal = make((path / "archive").as_uri())
    refused(journal.clean, "inside the journal")


def test_a_full_disk_leaves_no_half_of_a_segment(make, files, tmp_path):
    from elsewhere import mounted_by, run_python, small_disk

    journal = make(files, segments=20)
    (tmp_path / "archive").mkdir()
    run_python(
        f"""
        journal = jlog.Journal({journal.path!r})
        try:
            journal.clean()
            raise AssertionError("it fits")
        except jlog.JournalError as error:
            assert "No space left" in str(error), error
        kept = journal.first_sequence
        assert 0 < kept < 200, kept
        assert values({files!r}) == [value_of(number) for number in range(kept)]
        """,
        within=mounted_by(small_disk(tmp_path / "archive", "32k")),
    )


def test_a_half_segment_that_was_left_is_replaced(make, files):
    journal = make(files)
    folder = Path(files.removeprefix("file://")) / journal.uuid
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.seg").write_bytes(Path(journal.segments()[0].path).read_bytes()[:500])
    (folder / f".{10:020d}.seg.0123456789abcdef.part").write_bytes(b"half")
    journal.clean()
    assert values(files) == all_values(50)
    assert [file.name for file in folder.iterdir() if file.name.endswith(".part")] == []


def test_a_segment_that_is_there_whole_is_not_uploaded_again(make, files):
    journal = make(files)
    folder = Path(files.removeprefix("file://")) / journal.uuid
    folder.mkdir(parents=True)
    shutil.copy(journal.segments()[0].path, folder)
    inode = (folder / f"{0:020d}.seg").stat().st_ino
    told = []
    removed = journal.clean(progress=told.append)
    assert sum(told) == sum(segment.size_bytes for segment in removed[1:])
    assert (folder / f"{0:020d}.seg").stat().st_ino == inode


def test_a_process_overtaken_in_its_upload_goes_on(make, files, path, monkeypatch):
    """The other one takes the upload for what a killed process has left, and removes it."""
    journal = make(files)
    rename, first, renamed = ArchiveFolder._rename, journal.segments()[0], []

    def overtaken(target, beside, name):
        if name == os.path.basename(first.path) and name not in renamed:
            renamed.append(name)
            jlog.archive.Archive(files, journal=str(path)).store(first)
        rename(target, beside, name)

    monkeypatch.setattr(ArchiveFolder, "_rename", overtaken)
    assert len(journal.clean()) == 5
    assert renamed
    assert values(files) == all_values(50)


def test_a_half_segment_is_none_for_who_reads(make, files):
    journal = make(files)
    journal.clean()
    folder = archived_files(files)
    (folder / f"{40:020d}.json").unlink()
    (folder / f"{40:020d}.seg").write_bytes((folder / f"{40:020d}.seg").read_bytes()[:300])
    assert values(files) == all_values(40)


def test_a_segment_needed_again_when_it_is_archived_stays(make, files, path):
    journal = make(files)
    told = []

    def rewind(size):
        told.append(size)
        if len(told) == 2:
            journal.set_subscriber("billing", 10)

    assert [segment.first_sequence for segment in journal.clean(progress=rewind)] == [0]
    assert journal.first_sequence == 10
    assert values(path) == all_values(51)[10:]
    with jlog.Reader(path, archive=True) as reader:
        assert list(reader.values()) == all_values(51)


@pytest.mark.parametrize("call", ["clean", "archive_and_clean", "keep_archived"])
@pytest.mark.parametrize("keeps", ["read", "other archive"])
def test_a_retention_changed_during_an_upload_holds(make, files, path, tmp_path, monkeypatch, call, keeps):
    journal, put = make(files), ArchiveFolder.put
    options = {"archive": files, "archive_on_roll": True}
    jlog.Writer(path, retention=jlog.Retention(**options)).close()
    changed = {**options, "delete_read": False} if keeps == "read" else {**options, "archive": (tmp_path / "b").as_uri()}

    def change(folder, name, *more):
        monkeypatch.undo()
        put(folder, name, *more)
        jlog.Writer(path, retention=jlog.Retention(**changed)).close()

    def end_the_second_round():
        if journal.options.retention == jlog.Retention(**changed):
            raise jlog.JournalNotFound("it is over", str(path))

    monkeypatch.setattr(ArchiveFolder, "put", change)
    if call == "clean":
        assert journal.clean() == []
    elif call == "archive_and_clean":
        archive_and_clean(str(path))
    else:
        with pytest.raises(jlog.JournalNotFound, match="it is over"):
            keep_archived(str(path), every=0, seal=end_the_second_round, on_segment=print, on_error=print)
    assert journal.options.retention == jlog.Retention(**changed)
    if keeps == "read":
        assert journal.first_sequence == 0
    else:  # what is not here any more is in the archive that holds now
        there = values(changed["archive"]) if journal.first_sequence else []
        assert [*there, *values(path)] == all_values(51)


def test_moving_a_position_does_not_wait_for_an_upload(make, files, path):
    journal = make(files)
    moved = []

    def move(_):
        moved.append(journal.add_subscriber(f"s{len(moved)}", start="end"))

    assert len(journal.clean(progress=move)) == len(moved) == 5


def test_a_copy_of_the_journal_cannot_mix_its_segments_in(make, files, tmp_path):
    journal = make(files)
    journal.clean()
    copy = tmp_path / "copy"
    shutil.copytree(journal.path, copy)
    with jlog.Writer(copy) as writer:
        writer.append(b"another history")
        writer.roll()
    read_away(copy, "billing")
    refused(jlog.Journal(copy).clean, r"another copy of this journal.*archive\.meta")
    assert values(files) == all_values(50)


def test_a_copy_that_takes_the_archive_over_replaces_nothing(make, files, tmp_path):
    journal = make(files, segments=2)
    copy = tmp_path / "copy"
    shutil.copytree(journal.path, copy)
    with jlog.Writer(journal.path) as writer:
        fill(writer, 5)
        writer.roll()
    read_away(journal.path, "billing")
    journal.clean()
    with jlog.Writer(copy) as writer:
        writer.append(b"another history")
        writer.roll()
    read_away(copy, "billing")
    (archived_files(files) / "archive.meta").unlink()
    refused(jlog.Journal(copy).clean, "numbers from 20 to 25")
    assert values(files) == all_values(26)


# --- Reading ------------------------------------------------------------------------------------------------------


@pytest.fixture
def archived(make, url, path):
    """The URL of the archive of records 0 to 49."""
    make(url).clean()
    return url


def test_every_field_of_a_record_comes_back(path, url):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url)) as writer:
        writer.append(None, key=b"k", headers=[("a", b"1"), ("b", None)], timestamp_us=5)
        writer.extend([b"x" * 10_000], state={b"s": b"1"})
        writer.roll()
        with jlog.Reader(path) as reader:
            before = [(r.sequence, r.value, r.key, r.headers, r.timestamp_us) for r in reader]
        read_away(path, "billing")
        jlog.Journal(path).clean()
    with jlog.Reader(url) as reader:
        assert [(r.sequence, r.value, r.key, r.headers, r.timestamp_us) for r in reader] == before


def test_seeking_by_sequence_reaches_every_record(archived):
    with jlog.Reader(archived) as reader:
        assert isinstance(reader, jlog.Reader)
        for sequence in (0, 9, 10, 25, 49, 3):
            reader.seek(sequence)
            assert (reader.position, next(iter(reader)).value) == (sequence, value_of(sequence))
        reader.seek("end")
        assert (reader.position, list(reader), reader.lag) == (50, [], 0)
        reader.seek("begin")
        assert (reader.position, reader.lag) == (0, 50)
        for beyond in (51, -1):
            with pytest.raises(ValueError, match=r"50|0 or more"):
                reader.seek(beyond)
    with jlog.Reader(archived, start=45) as reader:
        assert sequences(reader) == [45, 46, 47, 48, 49]


def test_seeking_by_time_finds_the_first_record_at_or_after_it(path, url):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url)) as writer:
        for minute in range(50):
            writer.append(b"%d" % minute, timestamp_us=minute * 60_000_000)
            if minute % 10 == 9:
                writer.roll()
        read_away(path, "billing")
        jlog.Journal(path).clean()
    with jlog.Reader(url) as reader:
        for seconds, found in ((0, 0), (1, 1), (600, 10), (1141, 20), (2940, 49), (9999, 50)):
            time = datetime.fromtimestamp(seconds, timezone.utc)
            reader.seek(time)
            assert reader.position == found
            assert jlog.archive.Archive(url).find(time) == found


def test_batches_cross_from_segment_to_segment(archived):
    with jlog.Reader(archived) as reader:
        found = []
        while batch := reader.read(max_records=7):
            assert len(batch) <= 7
            found += batch.values()
        assert found == all_values(50)
        assert len(reader.read(timeout=0.01)) == 0


def test_arrow_batches_cross_from_segment_to_segment(make, url, path):
    make(url).clean()
    for reader in (jlog.Reader(url), jlog.Reader(path, archive=True)):
        with reader:
            batches = list(reader.record_batches(columns=["sequence", "value"], max_records=7, end=45))
            assert all(batch.schema.names == ["sequence", "value"] and len(batch) <= 7 for batch in batches)
            found = [row["value"] for batch in batches for row in batch.to_pylist()]
            assert (found, reader.position) == (all_values(45), 45)
            rest = [number for batch in reader.record_batches() for number in batch["sequence"].to_pylist()]
            assert rest == list(range(45, reader.position))
            assert reader.position >= 50


def test_reading_backward_crosses_from_segment_to_segment(archived):
    with jlog.Reader(archived, start="end") as reader:
        assert [record.sequence for record in reader.read_backward(15)] == list(range(49, 34, -1))
        assert [record.sequence for record in reader.read_backward(100)] == list(range(34, -1, -1))
        assert reader.read_backward(1) == []


def test_an_archive_has_no_subscribers_and_no_followers(archived):
    refused(lambda: jlog.Reader(archived, "billing"), "no subscribers")
    with jlog.Reader(archived) as reader:
        refused(reader.follow, "cannot be followed")
        for call in (
            reader.commit,
            lambda: reader.checkpoint("c"),
            lambda: reader.rewind("c"),
            lambda: reader.committed,
        ):
            refused(call, "commits nothing")
        with pytest.raises(ValueError, match="seek goes to"):
            reader.seek("some-checkpoint")
    with pytest.raises(jlog.JournalClosed):
        next(iter(reader))


def test_fetched_files_go_with_the_segment_and_the_reader(archived, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fetched():
        return [name for name in os.listdir(tmp_path) if name.startswith("jlog-archive-")]

    reader = jlog.Reader(archived)
    for _ in reader:
        assert len(fetched()) == 1
    reader.close()
    assert fetched() == []
    left = jlog.Reader(archived)
    next(iter(left))
    del left
    assert fetched() == []


@pytest.mark.parametrize("url", [kind for kind in URLS if kind != "memory"], indirect=True)
def test_fetched_files_of_a_process_that_was_ended_go_with_the_next_reader(archived, tmp_path, monkeypatch):
    """The kernel has freed their lock. Those of a reader that lives stay."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    read = (
        "import jlog, sys; reader = jlog.Reader(sys.argv[1]); print(next(iter(reader)).sequence, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", read, archived]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, **pipes) as process:
        assert process.stdout.readline() == b"0\n"
        process.terminate()
        assert process.wait(HUNG_SECONDS) == -signal.SIGTERM
    (left,) = temporary.iterdir()
    assert len(list(left.iterdir())) == 2
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(jlog.archive.local_copy, "ABANDONED_SECONDS", 0)
    with jlog.Reader(archived) as first, jlog.Reader(archived) as second:
        next(iter(first))
        assert not left.exists()
        next(iter(second))
        assert len(list(temporary.iterdir())) == 2
    assert list(temporary.iterdir()) == []


def test_an_archive_that_grows_is_read_on(make, url, path):
    journal = make(url, segments=1)
    journal.clean()
    with jlog.Reader(url) as reader:
        assert sequences(reader) == list(range(10))
        with jlog.Writer(path) as writer:
            writer.roll()
        read_away(path, "billing")
        journal.clean()
        assert sequences(reader) == [10]


def test_a_url_of_several_journals_names_them(tmp_path, url):
    uuids = []
    for name in ("a", "b"):
        with jlog.Writer(tmp_path / name, **SMALL, retention=jlog.Retention(archive=url)) as writer:
            writer.append(name.encode())
            writer.roll()
            read_away(tmp_path / name, "billing")
            jlog.Journal(tmp_path / name).clean()
        uuids.append(jlog.Journal(tmp_path / name).uuid)
    refused(lambda: jlog.Reader(url), f"several.*{min(uuids)}.*{max(uuids)}")
    assert [values(f"{url}/{uuid}") for uuid in uuids] == [[b"a"], [b"b"]]


def test_a_url_without_an_archive_says_so(tmp_path, url, path):
    with pytest.raises(jlog.JournalNotFound, match="no archived journal"):
        jlog.Reader(url)
    jlog.Journal.create(path)
    refused(lambda: jlog.Reader(path.as_uri()), "is a journal, not an archive")
    refused(lambda: jlog.Journal(url), r"is a URL.*jlog\.archive\.Archive")


def test_the_segments_of_an_archive_are_listed(archived):
    archive = jlog.archive.Archive(archived)
    found = archive.segments()
    assert [(s.first_sequence, s.end_sequence, s.records) for s in found] == [
        (first, first + 10, 10) for first in range(0, 50, 10)
    ]
    assert all(segment.path.startswith(archived) for segment in found)
    assert (archive.first_sequence, archive.next_sequence) == (0, 50)
    assert found[0].first_timestamp <= found[0].last_timestamp <= found[1].first_timestamp
    assert archive.verify() == []


def test_numbers_that_were_never_given_out_are_not_a_gap(path, url):
    child = os.fork()
    if child == 0:
        writer = jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url))
        fill(writer, 10)
        writer.sync()
        os._exit(0)
    os.waitpid(child, 0)
    os.unlink(path / "precommit")  # as a power loss leaves it: the page is not of this boot
    with jlog.Writer(path) as writer:
        after = writer.append(b"after the gap")
        writer.roll()
        read_away(path, "billing")
        jlog.Journal(path).clean()
    assert after > 10
    with jlog.Reader(url) as reader:
        assert reader.lag == 11
        assert sequences(reader) == [*range(10), after]
        reader.seek(after - 5)
        assert sequences(reader) == [after]
        assert [record.sequence for record in reader.read_backward(3)] == [after, 9, 8]
    assert jlog.archive.Archive(url).verify() == []


# --- Damage and gaps ----------------------------------------------------------------------------------------------


def test_a_missing_segment_is_told_and_can_be_gone_past(make, files):
    make(files).clean()
    folder = archived_files(files)
    for name in (f"{20:020d}.seg", f"{20:020d}.json"):
        (folder / name).unlink()
    with jlog.Reader(files) as reader:
        found = []
        with pytest.raises(jlog.PositionLost, match="from 20 to 29") as caught:
            found.extend(reader)
        assert [record.sequence for record in found] == list(range(20))
        assert caught.value.first_sequence == 30
        assert reader.position == 20
        with pytest.raises(jlog.PositionLost):
            reader.seek(25)
        reader.seek(caught.value.first_sequence)
        assert sequences(reader) == list(range(30, 50))
    (gap,) = jlog.archive.Archive(files).verify()
    assert (gap.first_sequence, gap.records_lost) == (20, 10)


def test_a_damaged_block_is_never_returned_and_can_be_skipped(make, files):
    make(files).clean()
    segment = archived_files(files) / f"{20:020d}.seg"
    content = bytearray(segment.read_bytes())
    content[-50] ^= 1
    segment.write_bytes(content)
    with jlog.Reader(files) as reader:
        records = iter(reader)
        found = []
        with pytest.raises(jlog.CorruptJournal) as caught:
            found.extend(record.sequence for record in records)
        assert caught.value.path == f"{files}/{segment.parent.name}/{segment.name}"
        damage = reader.skip_damage()
        assert (damage.path, damage.first_sequence, damage.records_lost) == (caught.value.path, 20, 10)
        assert [record.sequence for record in records] == list(range(30, 50))
    (damage,) = jlog.archive.Archive(files).verify()
    assert damage.path == caught.value.path


@pytest.mark.parametrize("left", [0, 50, 300])
def test_a_segment_that_was_cut_off_ends_in_damage(make, files, left):
    make(files).clean()
    segment = archived_files(files) / f"{20:020d}.seg"
    os.truncate(segment, left)
    with jlog.Reader(files) as reader:
        with pytest.raises(jlog.CorruptJournal):
            list(reader)
        assert reader.position == 20
        assert reader.skip_damage().records_lost == 10
        assert sequences(reader) == list(range(30, 50))


@pytest.mark.damage
def test_earlier_damage_is_archived_as_it_is_and_reported(make, files, path):
    journal = make(files)
    change(journal.segments()[2].path, -50, b"?")
    assert len(journal.clean()) == 5
    (damage,) = jlog.archive.Archive(files).verify()
    assert (damage.first_sequence, "before it was archived" in damage.reason) == (20, True)
    with jlog.Reader(files) as reader, pytest.raises(jlog.CorruptJournal):
        list(reader)


# --- Across -------------------------------------------------------------------------------------------------------


def test_reading_goes_from_the_archive_on_into_the_journal(make, url, path):
    make(url).clean()
    with jlog.Reader(path, archive=True) as reader:
        assert list(reader.values()) == all_values(51)
        assert (reader.position, reader.lag) == (51, 0)
        with jlog.Writer(path) as writer:
            fill(writer, 4)
        assert sequences(reader) == [51, 52, 53, 54]
        assert [record.sequence for record in reader.read_backward(10)] == list(range(54, 44, -1))
        assert reader.lag == 10
    with jlog.Reader(path, archive=True, start=30) as reader:
        assert sequences(reader)[0] == 30


def test_following_begins_in_the_archive(make, url, path):
    make(url).clean()
    with jlog.Reader(path, archive=True, start=48) as reader:
        assert [record.sequence for record in reader.follow(timeout=0.01)] == [48, 49, 50]


def test_following_in_an_event_loop_begins_in_the_archive(make, url, path):
    make(url).clean()

    async def follow():
        with jlog.Reader(path, archive=True, start=28) as reader:
            return [record.sequence async for record in reader.follow_async(timeout=0.01)]

    assert asyncio.run(follow()) == list(range(28, 51))


def test_following_at_a_pace_goes_on_from_segment_to_segment(make, files, path):
    make(files).clean()
    with jlog.Reader(path, archive=True, start=38) as reader:
        assert [record.sequence for record in reader.follow(timeout=0.01, pace=1e6)] == list(range(38, 51))
        with pytest.raises(ValueError, match="above 0"):
            reader.follow(pace=0)


def test_all_segments_are_listed_once_with_their_place(make, url, path):
    journal = make(url)
    assert jlog.archive.segments(path) == journal.segments()
    journal.clean()
    with jlog.Writer(path) as writer:
        writer.roll()
    found = jlog.archive.segments(path)
    assert [(s.first_sequence, s.archived) for s in found] == [
        *((first, True) for first in range(0, 50, 10)),
        (50, False),
        (51, False),
    ]
    assert all(segment.path.startswith(url if segment.archived else str(path)) for segment in found)


def test_a_reader_in_a_segment_that_is_archived_misses_nothing(make, url, path):
    journal = make(url)
    with jlog.Reader(path, archive=True) as reader:
        found = []
        for record in reader:
            found.append(record.sequence)
            if record.sequence == 15:
                assert len(journal.clean()) == 5
        assert found == list(range(51))


def test_a_place_between_archive_and_journal_is_reported(make, files, path):
    make(files).clean()
    with jlog.Writer(path, retention=jlog.Retention()) as writer:
        writer.roll()
        read_away(path, "billing")
        fill(writer, 2)
    with jlog.Reader(path, archive=files) as reader:
        found = []
        with pytest.raises(jlog.PositionLost, match="from 50 to 50") as caught:
            found += reader
        reader.seek(caught.value.first_sequence)
        assert sequences(reader) == [51, 52]
        with pytest.raises(jlog.PositionLost):
            reader.seek(50)


def test_an_archive_may_have_a_path_that_a_url_writes_otherwise(make, tmp_path, path):
    make((tmp_path / "a b%").as_uri()).clean()
    assert (tmp_path / "a b%").is_dir()
    assert values((tmp_path / "a b%").as_uri()) == all_values(50)


def test_a_journal_without_an_archive_says_so(writer, path):
    refused(lambda: jlog.Reader(path, archive=True), "has no archive")
    assert [segment.archived for segment in jlog.archive.segments(path)] == [False]


# --- Bringing back ------------------------------------------------------------------------------------------------


def test_a_journal_is_made_of_what_is_archived(path, url, tmp_path):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=url)) as writer:
        fill(writer, 100)
        writer.extend([b"last"], keys=[b"k"], headers=[[("h", b"1")]], timestamps_us=[7], state={b"s": b"1"})
        writer.roll()
        with jlog.Reader(path) as reader:
            before = [(r.sequence, r.value, r.key, r.headers, r.timestamp_us) for r in reader]
        read_away(path, "billing")
        jlog.Journal(path).clean()
        epochs = oracle_epochs(path)
    jlog.Journal.delete(path)
    back = tmp_path / "back"
    told = []
    jlog.archive.restore(url, back, progress=told.append)
    journal = jlog.Journal(back)
    with jlog.Reader(back) as reader:
        assert [(r.sequence, r.value, r.key, r.headers, r.timestamp_us) for r in reader] == before
    assert journal.state() == {b"s": b"1"}
    assert journal.verify().ok
    assert sum(told) == sum(segment.size_bytes for segment in journal.segments()[:-1])
    assert journal.options.retention == jlog.Retention(delete_read=False)
    assert oracle_epochs(back)[:-1] == epochs
    assert oracle_epochs(back)[-1][1] == 101
    with jlog.Writer(back) as writer:
        assert writer.append(b"goes on") == 101
    assert values(back, start=100) == [b"last", b"goes on"]


@pytest.mark.parametrize("records", [0, 10])
def test_an_archive_that_ends_with_an_empty_segment_is_restored(path, files, tmp_path, records):
    """A power loss may leave one: numbering goes on after a gap, in another segment."""
    child = os.fork()
    if child == 0:
        try:
            writer = jlog.Writer(path, **SMALL, retention=jlog.Retention(archive=files))
            if records:
                fill(writer, records)
                writer.extend([b"stored"], state={b"s": b"1"})
                writer.roll()
            writer.sync()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.unlink(path / "precommit")  # as a power loss leaves it: the page is not of this boot
    with jlog.Writer(path) as writer:
        writer.append(b"not archived")
        read_away(path, "billing")
        jlog.Journal(path).clean()
    end = jlog.archive.Archive(files).segments()[-1].end_sequence
    assert end == jlog.archive.Archive(files).segments()[-1].first_sequence
    back = tmp_path / "back"
    jlog.archive.restore(files, back)
    oracle.check_journal(back)
    assert jlog.Journal(back).verify().ok
    assert jlog.Journal(back).state() == ({b"s": b"1"} if records else {})
    with jlog.Writer(back) as writer:
        assert writer.append(b"goes on") == end
    assert values(back) == [*all_values(records), *([b"stored"] if records else []), b"goes on"]


def oracle_epochs(path):
    return oracle.read_journal(path).epochs


def test_an_existing_journal_is_not_restored_over(make, files, path, tmp_path):
    make(files).clean()
    with pytest.raises(jlog.JournalExists):
        jlog.archive.restore(files, path)
    (tmp_path / "empty").mkdir()
    jlog.archive.restore(files, tmp_path / "empty")
    assert values(tmp_path / "empty") == all_values(50)


@pytest.mark.parametrize("kind", ["damaged", "missing"])
def test_a_copy_that_is_not_whole_is_not_restored(make, files, tmp_path, kind):
    make(files).clean()
    folder = archived_files(files)
    if kind == "damaged":
        change(folder / f"{20:020d}.seg", -5, b"?")
    else:
        (folder / f"{20:020d}.json").unlink()
    with pytest.raises(jlog.CorruptJournal if kind == "damaged" else jlog.PositionLost):
        jlog.archive.restore(files, tmp_path / "back")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["archive", "j"]
