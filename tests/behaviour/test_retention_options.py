"""Retention's options remove and keep what they say: sizes, ages, subscribers that do not come back."""

import json
import logging
import os
import struct
import time
from datetime import datetime, timedelta, timezone

import google_crc32c
import pytest

import jlog
import jlog.care.passed_segments
from behaviour.journals import SMALL, backdate, fill, read_away, sequences, value_of, values
from crash.tampering import change

DAY = timedelta(days=1)


@pytest.fixture
def make(path):
    """Creates a journal of so many segments of ten records, and an open one without any."""
    writers = []

    def make(segments=10, **options):
        writer = jlog.Writer(path, **SMALL, retention=jlog.Retention(**options))
        writers.append(writer)
        for _ in range(segments):
            fill(writer, 10)
            writer.roll()
        return jlog.Journal(path)

    yield make
    for writer in writers:
        writer.close()


@pytest.fixture
def later(monkeypatch):
    """Sets the clock of this process's Python code, by which retention judges; the core's goes on as it is."""
    real = time.time_ns

    def later(by):
        monkeypatch.setattr(time, "time_ns", lambda: real() + int(by.total_seconds() * 1e9))

    return later


def finish_all(worker):
    while tasks := worker.take(timeout=0):
        worker.ack(tasks)


def reasons(segments):
    return {segment.first_sequence: segment.reason for segment in segments}


def segment_bytes(journal):
    sizes = {segment.size_bytes for segment in journal.segments()[1:-1]}
    return max(sizes)


# --- max_bytes ----------------------------------------------------------------------------------------------------


def test_max_bytes_removes_the_oldest_until_the_content_fits(make, path):
    journal = make(delete_read=False)
    size, each = journal.size_bytes, segment_bytes(journal)
    with jlog.Writer(path, retention=jlog.Retention(max_bytes=size - each)):
        removed = journal.clean()
    assert set(reasons(removed).values()) == {"max_bytes"}
    assert journal.size_bytes <= size - each < journal.size_bytes + removed[-1].size_bytes
    assert values(path) == [value_of(number) for number in range(journal.first_sequence, 100)]


def test_max_bytes_counts_what_is_in_the_buffer(path):
    with jlog.Writer(path, precommit=64 << 10, segment_bytes=1 << 20, retention=jlog.Retention(max_bytes=3000)) as writer:
        writer.append(b"x" * 1000)
        writer.roll()
        journal = jlog.Journal(path)
        assert journal.clean() == []
        assert len(journal.segments()) == 2
        writer.append(b"x" * 2000)
        assert [segment.first_sequence for segment in journal.clean()] == [0]


def test_max_bytes_is_kept_by_rolls_alone(path):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(max_bytes=20_000)) as writer:
        journal = jlog.Journal(path)
        for _ in range(20):
            fill(writer, 50)
            assert journal.size_bytes <= 20_000 + 2 * SMALL["segment_bytes"]
    assert journal.first_sequence > 700


def test_preallocated_space_is_no_content(path):
    with jlog.Writer(path, segment_bytes=1 << 20, retention=jlog.Retention(max_bytes=10_000)) as writer:
        for _ in range(3):
            fill(writer, 10)
            writer.roll()
        assert jlog.Journal(path).first_sequence == 0
        assert os.path.getsize(jlog.Journal(path).segments()[-1].path) > 10_000


def test_max_bytes_spares_what_a_subscriber_has_not_passed(make, path):
    journal = make(max_bytes=1)
    assert journal.first_sequence == 100  # as long as there was none
    with jlog.Writer(path) as writer:
        journal.add_subscriber("slow")
        for _ in range(3):
            fill(writer, 10)
            writer.roll()
    assert (journal.clean(), journal.first_sequence) == ([], 100)
    read_away(path, "slow", 15)
    assert journal.first_sequence == 110


def test_max_bytes_spares_what_a_checkpoint_has_not_passed(make, path):
    journal = make(segments=0, max_bytes=1)
    journal.set_checkpoint("c", "begin")
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        writer.roll()
    assert journal.clean() == []
    journal.remove_checkpoint("c")
    assert journal.first_sequence == 10


def test_without_keep_for_subscribers_unread_records_go(make, path):
    """The reader is told that its position is lost."""
    journal = make(delete_read=False)
    with jlog.Reader(path, "slow") as reader:
        assert next(iter(reader)).sequence == 0
        reader.commit()
        limits = jlog.Retention(delete_read=False, max_bytes=2000, keep_for_subscribers=False)
        with jlog.Writer(path, retention=limits):
            assert journal.clean()
        first = journal.first_sequence
        assert first > 10
        with pytest.raises(jlog.PositionLost) as caught:
            list(reader)
        assert caught.value.first_sequence == first
        reader.seek("begin")
        assert sequences(reader) == list(range(first, 100))


def test_delete_read_false_with_max_bytes_keeps_read_records(make, path):
    journal = make(delete_read=False)
    read_away(path, "billing")
    assert journal.first_sequence == 0
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False, max_bytes=5000)):
        assert set(reasons(journal.clean()).values()) == {"max_bytes"}
    assert 0 < journal.first_sequence < 100
    assert journal.size_bytes <= 5000


def test_the_open_segment_stays_whatever_its_size(path):
    with jlog.Writer(path, segment_bytes=1 << 20, retention=jlog.Retention(max_bytes=1)) as writer:
        written = fill(writer, 100)
        assert jlog.Journal(path).clean() == []
        assert values(path) == written


# --- max_age ------------------------------------------------------------------------------------------------------


def test_max_age_removes_what_was_written_longer_ago(make, path, later):
    journal = make(max_age=DAY)
    assert journal.clean() == []
    later(DAY * 2)
    assert set(reasons(journal.clean()).values()) == {"max_age"}
    assert journal.first_sequence == 100


def test_max_age_counts_from_the_clock_at_writing(path, later):
    """The records' own timestamps do not count."""
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(max_age=DAY)) as writer:
        writer.append(b"of 1970", timestamp_us=0)
        writer.roll()
        writer.append(b"of 2100", timestamp_us=4_102_444_800_000_000)
        writer.roll()
        journal = jlog.Journal(path)
        assert journal.clean() == []
        later(DAY * 2)
        assert len(journal.clean()) == 2


def test_a_segment_is_as_old_as_its_newest_record(make, path, later):
    journal = make(max_age=timedelta(hours=1))
    newest = [segment.written_us for segment in journal.segments()[:-1]]
    assert newest == sorted(newest)
    middle = datetime.fromtimestamp(newest[4] / 1e6, timezone.utc) + timedelta(hours=1, microseconds=1)
    later(middle - datetime.now(timezone.utc))
    # The clock goes on: at least these five; more only as time passes.
    assert journal.clean(dry_run=True)[:5] == journal.segments()[:5]


def test_max_age_spares_segments_a_subscriber_has_not_passed(make, path, later):
    """Without keep_for_subscribers it spares none."""
    journal = make(max_age=DAY)
    journal.add_subscriber("slow", start=25)
    later(DAY * 2)
    assert reasons(journal.clean()) == {0: "read", 10: "read"}
    with jlog.Writer(path, retention=jlog.Retention(max_age=DAY, keep_for_subscribers=False)):
        assert len(journal.clean()) == 8


def test_a_clock_that_was_set_back_removes_nothing(make, later):
    journal = make(max_age=DAY, subscriber_max_age=DAY)
    journal.add_subscriber("slow")
    later(-DAY * 400)
    assert journal.clean() == []
    assert not journal.subscribers()["slow"].expired
    assert journal.subscribers()["slow"].idle_seconds == 0


# --- Subscribers that do not come back ----------------------------------------------------------------------------


def test_a_subscriber_without_commits_holds_nothing_for_ever(make, path, later):
    journal = make(subscriber_max_age=DAY)
    journal.add_subscriber("dead", start=5)
    read_away(path, "alive")
    assert journal.first_sequence == 0
    later(DAY * 2)
    assert journal.subscribers()["dead"].expired
    assert journal.subscribers()["dead"].held_bytes == 0
    assert len(journal.clean()) == 10
    with jlog.Reader(path, "dead") as reader, pytest.raises(jlog.PositionLost) as caught:
        reader.read()
    assert caught.value.first_sequence == 100


def test_commits_within_the_open_segment_remove_what_an_expired_subscriber_held(make, path, later, monkeypatch):
    journal = make(subscriber_max_age=DAY)
    journal.add_subscriber("dead", start=5)
    with jlog.Writer(path) as writer:
        fill(writer, 5)
    with jlog.Reader(path, "alive") as reader:
        reader.commit(101)
        later(DAY * 2)
        reader.commit(102)
        assert journal.first_sequence == 0
        monkeypatch.setattr(jlog.care.passed_segments, "LOOK_SECONDS", 0)
        reader.commit(103)
        assert journal.first_sequence == 100


def test_the_only_subscriber_expires_too(make, later):
    journal = make(subscriber_max_age=DAY)
    journal.add_subscriber("dead")
    assert journal.clean() == []
    later(DAY * 2)
    assert set(reasons(journal.clean()).values()) == {"read"}


def test_workers_that_finish_nothing_hold_nothing_for_ever_and_are_told_what_was_lost(make, path, later):
    journal = make(subscriber_max_age=DAY)
    with jlog.Worker(path, "shared") as worker:
        first, second = worker.take(2, timeout=0)
        later(DAY / 2)
        second.ack()
        assert journal.clean() == []  # the oldest unfinished record is the position
        later(DAY * 2)
        assert journal.subscribers()["shared"].expired
        assert len(journal.clean()) == 10
        assert first.value == value_of(0)
        first.ack()
        with pytest.raises(jlog.PositionLost) as caught:
            finish_all(worker)  # of which it has those of one segment in memory
        assert caught.value.first_sequence == 100


def test_a_subscriber_that_commits_in_time_loses_nothing(make, path, later):
    journal = make(subscriber_max_age=DAY)
    later(DAY / 2)
    read_away(path, "alive", 15)
    assert journal.first_sequence == 10
    assert not journal.subscribers()["alive"].expired


def test_a_subscriber_that_had_nothing_to_commit_has_not_expired(path):
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(subscriber_max_age=DAY)) as writer:
        fill(writer, 10)
        read_away(path, "alive")
        backdate(path, "subscribers", "alive", -DAY * 3)
        journal = jlog.Journal(path)
        assert not journal.subscribers()["alive"].expired
        writer.roll()
        fill(writer, 10)
        writer.roll()
        # The journal has slept for longer than that, and what came now was not read yet.
        assert journal.first_sequence == 10
        assert not journal.subscribers()["alive"].expired
        with jlog.Reader(path, "alive") as reader:
            assert sequences(reader) == list(range(10, 20))


def test_a_reader_that_does_not_commit_expires_like_others(make, path, later):
    journal = make(subscriber_max_age=DAY)
    with jlog.Reader(path, "slow") as reader:
        next(iter(reader))
        later(DAY * 2)
        assert journal.subscribers()["slow"].busy
        assert len(journal.clean()) == 10
        with pytest.raises(jlog.PositionLost):
            list(reader)


def test_a_commit_ahead_of_the_clock_counts_as_one_of_now(make, path, later):
    journal = make(subscriber_max_age=DAY)
    journal.add_subscriber("slow")
    backdate(path, "subscribers", "slow", DAY * 10)
    later(DAY * 5)
    assert not journal.subscribers()["slow"].expired
    assert journal.clean() == []


def test_a_checkpoint_never_expires(make, path, later):
    journal = make(subscriber_max_age=DAY)
    journal.set_checkpoint("c", 5)
    read_away(path, "alive")
    later(DAY * 2)
    assert journal.clean() == []


def test_the_subscriber_that_holds_segments_back_is_named(make, path):
    journal = make()
    sizes = [segment.size_bytes for segment in journal.segments() if segment.sealed]
    journal.add_subscriber("slow", start=25)
    journal.set_checkpoint("c", 95)
    read_away(path, "fast")
    found = journal.subscribers()
    assert found["slow"].held_bytes == sum(sizes[2:])
    assert found["fast"].held_bytes == 0
    assert journal.checkpoints()["c"].held_bytes == sizes[-1]
    assert found["slow"].moved.tzinfo is timezone.utc
    assert 0 <= found["slow"].idle_seconds < 3600


def test_a_subscriber_dead_for_a_day_is_named(make, path, later):
    journal = make()
    journal.add_subscriber("dead", start=25)
    journal.add_subscriber("done", start="end")
    journal.add_subscriber("read")
    with jlog.Reader(path, "read"):
        assert journal.info()["dead"] == []
        later(DAY + timedelta(seconds=1))
        (dead,) = journal.info()["dead"]
    assert dead["name"] == "dead"
    assert dead["held_bytes"] == journal.subscribers()["dead"].held_bytes > 0
    assert dead["idle_seconds"] > DAY.total_seconds()
    assert not dead["expired"]


def test_an_expired_subscriber_is_named_at_once(make, later):
    journal = make(subscriber_max_age=timedelta(hours=1))
    journal.add_subscriber("dead")
    later(timedelta(hours=2))
    (dead,) = journal.info()["dead"]
    assert (dead["name"], dead["expired"], dead["held_bytes"]) == ("dead", True, 0)


# --- limit_bytes --------------------------------------------------------------------------------------------------


@pytest.fixture
def full(path):
    """A writer whose journal is at its limit, and a subscriber that has read nothing."""
    with jlog.Writer(path, **SMALL, retention=jlog.Retention(limit_bytes=20_000)) as writer:
        jlog.Journal(path).add_subscriber("billing")
        with pytest.raises(jlog.JournalFull, match="20000 bytes"):
            fill(writer, 1000)
        yield writer


def test_a_full_journal_takes_records_again_once_some_were_read(full, path):
    before = full.next_sequence
    assert 16_000 < jlog.Journal(path).size_bytes < 24_000
    with pytest.raises(jlog.JournalFull):
        full.append(b"still full")
    read_away(path, "billing", before // 2)
    assert jlog.Journal(path).first_sequence > 0
    assert full.append(value_of(before)) == before
    read_away(path, "billing")
    for _ in range(1000):
        full.append(b"x" * 10)
        read_away(path, "billing")


def test_a_full_journal_takes_records_once_a_subscriber_has_gone(full, path):
    jlog.Journal(path).add_subscriber("other", start="end")
    os.unlink(path / "subscribers" / "billing")  # so that nobody has noticed
    assert full.append(b"goes on")


def test_records_read_in_the_open_segment_make_room_too(path):
    options = {"precommit": 4 << 10, "segment_bytes": 1 << 20}
    with jlog.Writer(path, **options, retention=jlog.Retention(limit_bytes=20_000)) as writer:
        jlog.Journal(path).add_subscriber("billing")
        with pytest.raises(jlog.JournalFull):
            fill(writer, 1000)
        read_away(path, "billing")
        next_sequence = writer.next_sequence
        assert writer.append(b"goes on") == next_sequence


def test_a_segment_makes_room_once_it_is_archived(path, tmp_path):
    kept = jlog.Retention(limit_bytes=20_000, archive=(tmp_path / "archive").as_uri())
    with jlog.Writer(path, **SMALL, retention=kept) as writer:
        for _ in range(2):
            with pytest.raises(jlog.JournalFull):
                fill(writer, 1000)
            read_away(path, "billing")
            with pytest.raises(jlog.JournalFull):
                writer.append(b"still full")
            assert jlog.Journal(path).clean()
            writer.append(b"goes on")
    with jlog.Reader(path, archive=True) as reader:
        assert sequences(reader) == list(range(jlog.Journal(path).next_sequence))


# --- As options ---------------------------------------------------------------------------------------------------

REFUSED = [
    ({"max_bytes": 0}, ValueError, "at least 1"),
    ({"max_bytes": 1.5}, TypeError, "number of bytes"),
    ({"limit_bytes": -1}, ValueError, "at least 1"),
    ({"max_age": 7}, TypeError, "timedelta"),
    ({"max_age": timedelta(0)}, ValueError, "must be above zero"),
    ({"subscriber_max_age": "1d"}, TypeError, "timedelta"),
    ({"delete_read": 1}, TypeError, "True or False"),
    ({"keep_for_subscribers": None}, TypeError, "True or False"),
    ({"max_bytes": 10, "limit_bytes": 5}, ValueError, "JournalFull before"),
    ({"archive": "/var/archive"}, ValueError, "file:///"),
    ({"archive": "file://relative"}, ValueError, "file:///"),
    ({"archive": 5}, TypeError, "URL"),
    ({"archive": "ftp://me:secret@host/x"}, ValueError, "password"),
    ({"archive": "file:///x", "delete_read": False}, ValueError, "removes nothing"),
]


@pytest.mark.parametrize(("given", "error", "said"), REFUSED)
def test_an_impossible_option_is_refused_with_the_choices(given, error, said):
    with pytest.raises(error, match=said) as caught:
        jlog.Retention(**given)
    assert "secret" not in str(caught.value)


def test_an_unreachable_archive_is_refused_with_the_choices(path):
    with pytest.raises(ValueError, match=r"nowhere://, which fsspec does not know.*, file, .*, s3"):
        jlog.Journal.create(path, retention=jlog.Retention(archive="nowhere://x"))
    assert not path.exists()


ALL = {
    "delete_read": False,
    "max_bytes": 1 << 40,
    "max_age": timedelta(days=7, microseconds=5),
    "keep_for_subscribers": False,
    "subscriber_max_age": timedelta(milliseconds=1500),
    "limit_bytes": 1 << 41,
    "archive": "s3://bucket/prefix",
    "archive_on_roll": True,
}


def test_every_field_is_kept_by_the_journal(path):
    given = jlog.Retention(**ALL)
    jlog.Journal.create(path, retention=given)
    journal = jlog.Journal(path)
    assert journal.options.retention == given
    shown = journal.info()["retention"]
    assert json.loads(json.dumps(shown)) == {
        **ALL,
        "max_age": 604_800.000005,
        "subscriber_max_age": 1.5,
    }


def test_a_later_writers_retention_replaces_the_whole(path):
    jlog.Writer(path, retention=jlog.Retention(max_bytes=1 << 30, max_age=DAY)).close()
    jlog.Writer(path, retention=jlog.Retention(limit_bytes=1 << 30)).close()
    assert jlog.Journal(path).options.retention == jlog.Retention(limit_bytes=1 << 30)
    jlog.Writer(path).close()
    assert jlog.Journal(path).options.retention == jlog.Retention(limit_bytes=1 << 30)


def rewrite_retention(path, **fields):
    """As another version of jlog would have written it."""
    first, _, body = (path / "journal.meta").read_bytes().partition(b"\n")
    meta = json.loads(body)
    meta["options"]["retention"] = fields
    body = json.dumps(meta).encode()
    first = b"jlog 1 crc32c=%08x\n" % struct.unpack(">I", google_crc32c.Checksum(body).digest())
    (path / "journal.meta").write_bytes(first + body)


def test_fields_that_an_older_version_lacks_have_defaults(make, path):
    journal = make()
    rewrite_retention(path, delete_read=False)
    assert journal.options.retention == jlog.Retention(delete_read=False)
    read_away(path, "billing")
    assert journal.clean() == []


def test_fields_of_a_newer_version_remove_nothing(make, path, caplog):
    journal = make()
    rewrite_retention(path, delete_read=True, keep_something=5)
    read_away(path, "billing")
    assert journal.first_sequence == 0
    with pytest.raises(jlog.UnsupportedFormat, match=r"keep_something.*upgrade"):
        journal.clean()


# --- Rolling by time ----------------------------------------------------------------------------------------------

PERIOD_BEGIN_AT = 232  # in the control page


def test_clean_seals_the_segment_of_a_period_that_is_over(path):
    with jlog.Writer(path, roll="weekly") as writer:
        fill(writer, 5)
        read_away(path, "billing")
        journal = jlog.Journal(path)
        assert (journal.clean(), len(journal.segments())) == ([], 1)
        (begin_us,) = struct.unpack_from("<q", (path / "precommit").read_bytes(), PERIOD_BEGIN_AT)
        change(path / "precommit", PERIOD_BEGIN_AT, struct.pack("<q", begin_us - 7 * 86_400_000_000))
        assert journal.clean(dry_run=True) == []
        journal.clean()
        assert (journal.first_sequence, len(journal.segments())) == (5, 1)


# --- With a commit ------------------------------------------------------------------------------------------------


@pytest.mark.damage
def test_a_commit_stands_where_cleaning_fails_and_says_why(make, path, caplog):
    journal = make(segments=3)
    with jlog.Reader(path, "billing") as reader:
        list(reader)
        change(path / f"{30:020d}.seg", 0, bytes(96))
        with caplog.at_level(logging.WARNING, logger="jlog"):
            reader.commit()
    assert journal.subscribers()["billing"].sequence == 30
    assert "nothing was cleaned" in caplog.text
    assert f"{30:020d}.seg" in caplog.text


def test_a_dry_run_needs_no_write_access_and_changes_nothing(make, path):
    journal = make(delete_read=False)
    journal.add_subscriber("billing", start=55)
    with jlog.Writer(path, retention=jlog.Retention()):
        before = sorted(file.name for file in path.iterdir())
        assert list(reasons(journal.clean(dry_run=True))) == [0, 10, 20, 30, 40]
        assert sorted(file.name for file in path.iterdir()) == before
