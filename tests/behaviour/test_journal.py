"""The journal seen from outside: made, found, looked at, verified."""

import inspect
import os
from datetime import datetime, timedelta, timezone

import pytest

import jlog
from behaviour.journals import SMALL, fill, read_away, values

BEGIN = datetime(2024, 5, 1, tzinfo=timezone.utc)


# --- Properties and methods -----------------------------------------------------------------------------------------


def test_a_single_fact_is_a_property_and_all_else_a_method():
    for name, member in vars(jlog.Journal).items():
        if name[0] != "_":
            is_property = isinstance(member, property)
            signature = inspect.signature(member.fget if is_property else getattr(jlog.Journal, name))
            takes = [one for one in signature.parameters.values() if one.default is one.empty and one.name != "self"]
            is_fact = signature.return_annotation in ("str", "int", "bool", "Options") and not takes
            assert is_property == is_fact, name


# --- Making and finding -------------------------------------------------------------------------------------------


def test_create_makes_an_empty_journal_with_a_writers_options(path):
    journal = jlog.Journal.create(path, precommit=8 << 10, segment_bytes=16 << 10)
    assert (journal.path, len(journal), journal.first_sequence, journal.next_sequence) == (str(path), 0, 0, 0)
    assert (journal.options.precommit, journal.options.segment_bytes) == (8 << 10, 16 << 10)
    assert journal.verify().ok
    with jlog.Writer(path, precommit=4 << 10) as writer:
        assert writer.precommit == 8 << 10


def test_a_creator_that_bypasses_the_buffer_leaves_it_at_128_kib(path):
    assert jlog.Journal.create(path, precommit=0).options.precommit == 128 << 10
    with jlog.Writer(path) as writer:
        assert writer.precommit == 128 << 10


def test_create_refuses_what_is_a_journal_already(writer, path):
    writer.append(b"value")
    with pytest.raises(jlog.JournalExists, match=str(path)):
        jlog.Journal.create(path)
    assert jlog.Journal.create(path, exist_ok=True).next_sequence == 1
    assert values(path) == [b"value"]


@pytest.mark.parametrize("make", [jlog.Journal.create, jlog.Writer], ids=["create", "Writer"])
def test_a_path_that_is_a_file_is_left_alone(path, make):
    path.write_bytes(b"mine")
    with pytest.raises(jlog.JournalExists, match=f"{path}.*another path"):
        make(path)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("make", [jlog.Journal.create, jlog.Writer], ids=["create", "Writer"])
def test_a_directory_with_other_files_is_left_alone(path, make):
    path.mkdir()
    (path / "other").write_bytes(b"mine")
    with pytest.raises(jlog.JournalExists, match=f"{path}.*another path"):
        make(path)
    assert os.listdir(path) == ["other"]


@pytest.mark.parametrize("make", [jlog.Journal.create, jlog.Writer], ids=["create", "Writer"])
@pytest.mark.parametrize("others", [{"lock": b"4711"}, {"lock": b"", "notes": b"mine"}], ids=["a lock", "more than a lock"])
def test_a_file_named_lock_makes_no_directory_a_journal(path, make, others):
    path.mkdir()
    for name, content in others.items():
        (path / name).write_bytes(content)
        (path / name).chmod(0o600)
    path.chmod(0o755)
    with pytest.raises(jlog.JournalExists, match="another path"):
        make(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == others
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}


@pytest.mark.parametrize("make", [jlog.Journal.create, jlog.Writer], ids=["create", "Writer"])
def test_the_top_of_a_file_system_gets_the_advice_to_take_a_directory_below_it(path, make):
    (path / "lost+found").mkdir(parents=True)
    with pytest.raises(jlog.JournalExists, match=f"choose a directory below it, such as {path}/journal"):
        make(path)


@pytest.mark.parametrize("make", [jlog.Journal.create, jlog.Writer], ids=["create", "Writer"])
def test_an_empty_directory_becomes_a_journal(path, make):
    path.mkdir()
    make(path)
    assert jlog.Journal(path).next_sequence == 0


OPENERS = {
    "Journal": jlog.Journal,
    "Reader": jlog.Reader,
    "named Reader": lambda path: jlog.Reader(path, "billing", create=False),
    "Writer": lambda path: jlog.Writer(path, create=False),
    "delete": jlog.Journal.delete,
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())
def test_a_missing_journal_is_not_found_and_nothing_is_touched(tmp_path, opener):
    (tmp_path / "file").write_bytes(b"mine")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "other").write_bytes(b"mine")
    for name, said in (
        ("missing", "does not exist"),
        ("file", "is a file"),
        ("directory", "no journal.meta"),
    ):
        with pytest.raises(jlog.JournalNotFound, match=f"{tmp_path / name}.*{said}") as caught:
            opener(tmp_path / name)
        assert isinstance(caught.value, FileNotFoundError)
        assert isinstance(caught.value, jlog.JournalError)
    assert sorted(os.listdir(tmp_path)) == ["directory", "file"]
    assert os.listdir(tmp_path / "directory") == ["other"]


def test_a_dangling_link_is_a_missing_journal(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(jlog.JournalNotFound, match="link"):
        jlog.Journal(tmp_path / "link")


def test_a_link_leads_to_the_same_journal(writer, path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    with jlog.Writer(tmp_path / "link") as linked:
        assert [writer.append(b"a"), linked.append(b"b"), writer.append(b"c")] == [0, 1, 2]
    assert values(tmp_path / "link") == [b"a", b"b", b"c"]


def test_paths_are_str_or_path_and_stay_relative_to_their_origin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = jlog.Journal.create("j")
    reader = jlog.Reader("j")
    with jlog.Writer("j") as writer:
        monkeypatch.chdir("/")
        writer.append(b"a")
        writer.roll()
        assert list(reader.values()) == [b"a"]
    assert (journal.path, journal.next_sequence) == (str(tmp_path / "j"), 1)
    reader.close()


# --- Looking ------------------------------------------------------------------------------------------------------


def test_it_counts_what_is_there_the_buffer_included(writer, path):
    journal = jlog.Journal(path)
    assert (len(journal), bool(journal)) == (0, True)
    fill(writer, 150)
    assert (len(journal), journal.first_sequence, journal.next_sequence) == (150, 0, 150)
    journal.add_subscriber("billing")
    read_away(path, "billing", 100)
    assert 0 < journal.first_sequence <= 100
    assert len(journal) == 150 - journal.first_sequence


def test_segments_are_told_oldest_first_with_the_open_one(writer, path):
    fill(writer, 10)
    writer.roll()
    fill(writer, 7)
    writer.roll()
    fill(writer, 3)
    found = jlog.Journal(path).segments()
    assert [(segment.first_sequence, segment.records, segment.sealed) for segment in found] == [
        (0, 10, True),
        (10, 7, True),
        (17, 3, False),
    ]
    assert all(os.path.dirname(segment.path) == str(path) and os.path.exists(segment.path) for segment in found)


def test_segments_tell_the_times_of_their_records(writer, path):
    times = [BEGIN + timedelta(hours=hour) for hour in (3, 1, 2, 7, 5)]
    for time in times[:3]:
        writer.append(b"x", timestamp_us=int(time.timestamp()) * 1_000_000)
    writer.roll()
    for time in times[3:]:
        writer.append(b"x", timestamp_us=int(time.timestamp()) * 1_000_000)
    writer.flush()
    first, second = jlog.Journal(path).segments()
    assert (first.first_timestamp, first.last_timestamp) == (times[0], times[2])
    assert (second.first_timestamp, second.last_timestamp) == (times[3], times[4])


def test_a_segment_without_records_has_no_times(writer, path):
    (segment,) = jlog.Journal(path).segments()
    assert (segment.records, segment.first_timestamp, segment.last_timestamp) == (0, None, None)


def test_size_is_what_segments_hold_and_not_what_is_preallocated(path):
    with jlog.Writer(path) as writer:
        assert jlog.Journal(path).size_bytes < 1000
        writer.append(b"x" * 10_000)
        writer.flush()
        assert 10_000 < jlog.Journal(path).size_bytes < 11_000
    assert jlog.Journal(path).size_bytes == sum(file.stat().st_size for file in path.glob("*.seg"))


@pytest.mark.parametrize("deferred", [False, True], ids=["in the open block", "in an immutable block too"])
def test_size_counts_the_records_in_the_buffer_as_records_does(path, deferred):
    with jlog.Writer(path, precommit=4 << 10) as writer:
        empty = jlog.Journal(path).size_bytes
        writer.extend([b"%d" % number for number in range(400 if deferred else 100)])
        journal = jlog.Journal(path)
        (segment,) = journal.segments()
        assert segment.records == len(journal) == (400 if deferred else 100)
        before = segment.size_bytes
        assert before == journal.size_bytes == journal.stats().size_bytes == journal.info()["size_bytes"] > empty
        assert (segment.first_timestamp is None) != deferred  # of what the file holds, as ever
        writer.flush()
        assert jlog.Journal(path).size_bytes == before
    assert os.path.getsize(segment.path) == before


def test_size_counts_the_buffer_that_a_killed_writer_has_left(spawn, path):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 100, 20)
    before = jlog.Journal(path).size_bytes
    child.kill()
    journal = jlog.Journal(path)
    assert journal.size_bytes == before > 100 * 20
    jlog.Writer(path).close()
    assert journal.size_bytes == before


def test_info_tells_what_scripts_rely_on(writer, path):
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    journal.set_checkpoint("start", 0)
    written = fill(writer, 50)
    writer.flush()
    read_away(path, "billing", 20)
    found = journal.info()
    assert found["path"] == str(path)
    assert len(bytes.fromhex(found["uuid"])) == 16
    assert (found["format_version"], found["first_sequence"], found["next_sequence"], found["records"]) == (
        1,
        0,
        50,
        50,
    )
    assert found["segments"] == len(journal.segments())
    assert found["size_bytes"] == journal.size_bytes
    assert found["raw_bytes"] >= sum(map(len, written))
    assert (found["compression"], found["precommit"], found["sync"]) == ("none", 4 << 10, "none")
    assert found["retention"]["delete_read"] is True
    assert found["subscribers"] == [{"name": "billing", "sequence": 20, "lag": 30, "busy": False}]
    assert found["checkpoints"] == [{"name": "start", "sequence": 0, "lag": 50}]
    assert found["skipped"] == []


def test_two_journals_have_two_identities(tmp_path):
    one, other = jlog.Journal.create(tmp_path / "a"), jlog.Journal.create(tmp_path / "b")
    assert one.uuid != other.uuid
    assert jlog.Journal(tmp_path / "a").uuid == one.uuid


def test_verify_counts_what_it_has_checked(writer, path):
    fill(writer, 150)
    writer.extend([b"x"], state={b"k": b"v"})
    writer.append(b"in the buffer")
    report = jlog.Journal(path).verify()
    assert report.ok
    assert (report.records, report.segments, report.damage) == (152, len(jlog.Journal(path).segments()), [])
    assert report.blocks == sum(1 for _ in jlog.Journal(path).blocks())


def test_verify_of_a_closed_journal_is_the_same(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 150)
    report = jlog.Journal(path).verify()
    assert (report.ok, report.records) == (True, 150)


# --- find ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["open", "flushed", "rolled"])
def hourly(request, writer, path):
    """An hour between records, out of order in the middle."""
    for hour in (0, 1, 2, 6, 4, 5, 3, 7, 8, 9):
        writer.append(b"x" * 600, timestamp_us=int((BEGIN + timedelta(hours=hour)).timestamp()) * 1_000_000)
        if request.param == "flushed":
            writer.flush()
        if request.param == "rolled":
            writer.roll()
    return jlog.Journal(path)


FOUND = [
    (-5, 0),
    (0, 0),
    (1, 1),
    (2, 2),
    (2.5, 3),
    (3, 3),
    (5, 3),
    (6, 3),
    (6.5, 7),
    (7, 7),
    (9, 9),
    (9.5, 10),
    (100, 10),
]


@pytest.mark.parametrize(("hour", "expected"), FOUND)
def test_find_is_the_first_record_at_or_after_the_time(hourly, hour, expected):
    assert hourly.find(BEGIN + timedelta(hours=hour)) == expected


def test_find_wants_an_aware_datetime(hourly):
    with pytest.raises(ValueError, match="time zone"):
        hourly.find(datetime(2024, 5, 1))  # noqa: DTZ001
    for other in (5, "2024-05-01", None):
        with pytest.raises((TypeError, AttributeError)):
            hourly.find(other)


def test_find_in_many_blocks_agrees_with_looking_at_every_record(path):
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10) as writer:
        for number in range(3000):
            time = BEGIN + timedelta(seconds=number * 7 - (number % 50) * 20)
            writer.append(b"x" * 100, timestamp_us=int(time.timestamp()) * 1_000_000)
        journal = jlog.Journal(path)
        times = [record.timestamp for record in jlog.Reader(path)]
        for second in range(-500, 22_000, 977):
            wanted = BEGIN + timedelta(seconds=second)
            expected = next((number for number, time in enumerate(times) if time >= wanted), 3000)
            assert journal.find(wanted) == expected


# --- delete -------------------------------------------------------------------------------------------------------


def test_delete_removes_all_of_it(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 100)
    jlog.Journal(path).add_subscriber("billing")
    jlog.Journal.delete(path)
    assert not path.exists()
    with jlog.Writer(path) as writer:
        assert writer.append(b"new") == 0
    assert jlog.Journal(path).subscribers() == {}


UNFINISHED = ["2.17", "0.5.idx", "recovery", "repair", "backup", "restore.idx"]


def test_delete_removes_what_killed_processes_have_left(path):
    jlog.Journal.create(path)
    for name in (*(f"next.{name}" for name in UNFINISHED), ".journal.meta"):
        (path / name).touch()
    (path / "spark" / "query").mkdir(parents=True)
    (path / "spark" / "query" / "rows").touch()
    jlog.Journal.delete(path)
    assert not path.exists()


def test_the_next_writer_removes_a_meta_that_a_killed_process_has_begun(path):
    with jlog.Writer(path):
        (path / ".journal.meta").touch()
        jlog.Writer(path).close()  # beside the other one, in one process, it opens nothing
        assert (path / ".journal.meta").exists()
    jlog.Writer(path).close()
    assert not (path / ".journal.meta").exists()


def test_delete_keeps_files_of_the_user(path):
    mine = {"next.steps", "next.txt", "next.1", "next.1.2.txt", ".journal.meta.orig", "notes"}
    jlog.Journal.create(path)
    for name in mine:
        (path / name).touch()
    jlog.Journal.delete(path)
    assert {file.name for file in path.iterdir()} == mine


def test_delete_refuses_what_is_written_to(writer, path):
    writer.append(b"value")
    with pytest.raises(jlog.JournalLocked, match=f"{path}.*close"):
        jlog.Journal.delete(path)
    assert values(path) == [b"value"]
    assert writer.append(b"value") == 1


def test_delete_refuses_what_a_subscriber_reads(path):
    jlog.Journal.create(path)
    with jlog.Reader(path, "billing"), pytest.raises(jlog.SubscriberBusy, match="billing"):
        jlog.Journal.delete(path)
    assert jlog.Journal(path).subscribers()["billing"].sequence == 0
    jlog.Journal.delete(path)
    assert not path.exists()
