"""An archived segment that is far away is read in ranges: what is read costs about its own bytes, and is the same."""

import asyncio
import os
import random
from datetime import datetime, timezone
from pathlib import Path

import pytest

import jlog
from behaviour.journals import read_away
from crash.tampering import flip
from jlog._core.segments.index import SparseIndex, index_content, parse_index
from jlog.archive import Archive, local_copy

RECORD = 1000
OPTIONS = {"precommit": 8 << 10, "segment_bytes": 16 << 20}


def value_of(number):
    return b"%d " % number + bytes(RECORD)


def append(writer, records):
    first = writer.next_sequence
    for number in range(first, first + records):
        writer.append(value_of(number), timestamp_us=number * 1_000_000)


def archive(path, url, *segments):
    """Archives segments of so many records."""
    with jlog.Writer(path, **OPTIONS, retention=jlog.Retention(archive=url)) as writer:
        for records in segments:
            append(writer, records)
            writer.roll()
    read_away(path, "billing")
    jlog.Journal(path).clean()


@pytest.fixture
def folder(path, tmp_path):
    """The files of an archive of two segments, of a megabyte each: 0 to 999 and 1000 to 1999."""
    archive(path, (tmp_path / "archive").as_uri(), 1000, 1000)
    return next((tmp_path / "archive").iterdir())


@pytest.fixture
def url(folder, counting):
    """The same archive, far away."""
    return f"counting://{folder}"


@pytest.fixture
def short_runs(monkeypatch):
    """A reader keeps a megabyte of a segment, as it keeps 32 MiB of one that is larger."""
    monkeypatch.setattr(local_copy, "RUN_BYTES", 1 << 20)
    monkeypatch.setattr(local_copy, "RANGE_BYTES", 256 << 10)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The files of an archive of two segments of 16 MB each."""
    path = tmp_path_factory.mktemp("large")
    archive(path / "j", (path / "archive").as_uri(), 16_000, 16_000)
    return next((path / "archive").iterdir())


def files(folder, suffix):
    return sorted(folder.glob(f"*.{suffix}"))


def size_of(folder):
    return sum(file.stat().st_size for file in files(folder, "seg"))


def sequences(reader):
    found = []
    for record in reader:
        assert record.value == value_of(record.sequence)
        found.append(record.sequence)
    return found


# --- What it costs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 8000, 15_995, 20_000, 31_990])
def test_ten_records_of_a_large_segment_cost_kilobytes(large, counting, start):
    with jlog.Reader(f"counting://{large}", start=start) as reader:
        found = [next(reader.values()) for _ in range(10)]
    assert found == [value_of(number) for number in range(start, start + 10)]
    assert counting.bytes_read < 300_000
    assert counting.requests < 12


def test_reading_all_costs_the_bytes_once(large, counting):
    with jlog.Reader(f"counting://{large}") as reader:
        assert sum(1 for _ in reader.values()) == 32_000
    assert counting.bytes_read <= 1.01 * size_of(large)
    assert counting.requests < 25
    assert counting.listings <= 4  # when it is opened, and at the end


def test_a_range_that_ends_early_costs_no_more_than_it_has(large, counting):
    with jlog.Reader(f"counting://{large}", start=4000) as reader:
        found = [n for batch in reader.record_batches(columns=["sequence"], end=6000) for n in batch["sequence"].to_pylist()]
    assert found == list(range(4000, 6000))
    assert counting.bytes_read < 2_300_000
    assert counting.requests < 8


def test_the_newest_records_cost_kilobytes(large, counting):
    with jlog.Reader(f"counting://{large}", start="end") as reader:
        assert [record.sequence for record in reader.read_backward(10)] == list(range(31_999, 31_989, -1))
    assert counting.bytes_read < 300_000


def test_reading_backward_costs_the_bytes_once(large, counting):
    expected = 32_000
    with jlog.Reader(f"counting://{large}", start="end") as reader:
        while found := reader.read_backward(700):
            assert [record.sequence for record in found] == list(range(expected - 1, expected - 1 - len(found), -1))
            expected -= len(found)
    assert expected == 0
    assert counting.bytes_read <= 1.05 * size_of(large)


@pytest.mark.usefixtures("short_runs")
def test_a_reader_keeps_a_part_of_a_very_large_segment(large, counting, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with jlog.Reader(f"counting://{large}") as reader:
        expected = 0
        while found := reader.read(1000).values():
            assert found == [value_of(number) for number in range(expected, expected + len(found))]
            expected += len(found)
            assert sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*")) < 2 << 20
        assert expected == 32_000
        assert counting.bytes_read <= 1.01 * size_of(large)
        while found := reader.read_backward(100):
            assert [record.sequence for record in found] == list(range(expected - 1, expected - 101, -1))
            expected -= 100
        assert expected == 0
    assert counting.bytes_read <= 2.5 * size_of(large)


def test_finding_a_time_costs_kilobytes(large, counting):
    assert Archive(f"counting://{large}").find(datetime.fromtimestamp(24_000, timezone.utc)) == 24_000
    assert counting.bytes_read < 300_000


class CountingS3:
    """The bytes that S3 sends."""

    def __init__(self, monkeypatch):
        import s3fs

        self.bytes_read = self.requests = 0
        call = s3fs.S3FileSystem._call_s3

        async def counted(fs, method, *arguments, **more):
            found = await call(fs, method, *arguments, **more)
            self.requests += 1
            self.bytes_read += found["ContentLength"] if method == "get_object" else 0
            return found

        monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)


@pytest.mark.xdist_group("s3")
def test_an_object_store_sends_only_what_is_read(path, s3, monkeypatch, tmp_path):
    url = f"{s3}/{tmp_path.name}"
    archive(path, url, 4000)
    size = Archive(url).info()["size_bytes"]
    few = CountingS3(monkeypatch)
    with jlog.Reader(url, start=2000) as reader:
        assert reader.read(10).values() == [value_of(number) for number in range(2000, 2010)]
    assert few.bytes_read < 100_000
    everything = CountingS3(monkeypatch)
    with jlog.Reader(url) as reader:
        assert sequences(reader) == list(range(4000))
    assert size <= everything.bytes_read <= 1.01 * size + 10_000


# --- What is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [local_copy.RUN_BYTES, 200_000])
def test_seeking_anywhere_finds_the_same_records(url, monkeypatch, kept):
    monkeypatch.setattr(local_copy, "RUN_BYTES", kept)
    monkeypatch.setattr(local_copy, "RANGE_BYTES", kept // 2)
    chosen = random.Random(kept)
    with jlog.Reader(url) as reader:
        for _ in range(60):
            at, count = chosen.randrange(2001), chosen.randrange(1, 300)
            reader.seek(at)
            assert reader.position == at
            found = []
            while len(found) < count and (batch := reader.read(count - len(found))):
                found += batch.values()
            assert found == [value_of(number) for number in range(at, min(at + count, 2000))]
            back = reader.read_backward(chosen.randrange(1, 300))
            first = at + len(found) - 1
            assert [record.sequence for record in back] == list(range(first, first - len(back), -1))
            assert reader.position == first + 1 - len(back)


def test_every_time_is_found(url):
    with jlog.Reader(url) as reader:
        for second in range(0, 2100, 37):
            reader.seek(datetime.fromtimestamp(second, timezone.utc))
            assert reader.position == min(second, 2000)


def test_following_goes_from_the_ranges_on_into_the_journal(folder, path, counting):
    with jlog.Writer(path) as writer:
        append(writer, 3)
    with jlog.Reader(path, archive=f"counting://{folder.parent}", start=900) as reader:
        assert [record.sequence for record in reader.follow(timeout=0.01)] == list(range(900, 2003))

    async def follow():
        with jlog.Reader(path, archive=f"counting://{folder.parent}", start=900) as reader:
            return [record.sequence async for record in reader.follow_async(timeout=0.01)]

    assert asyncio.run(follow()) == list(range(900, 2003))


def test_segments_that_store_state_are_read_in_ranges(path, tmp_path, counting):
    with jlog.Writer(path, **OPTIONS, retention=jlog.Retention(archive=(tmp_path / "archive").as_uri())) as writer:
        for number in range(100):
            append(writer, 5)
            writer.extend([], state={b"key": bytes(9000)})
            if number == 50:
                for _ in range(30):
                    writer.extend([], state={b"key": bytes(9000), b"other": bytes(20_000)})
        writer.roll()
        read_away(path, "billing")
        jlog.Journal(path).clean()
    url = f"counting://{next((tmp_path / 'archive').iterdir())}"
    with jlog.Reader(url) as reader:
        assert sequences(reader) == list(range(500))
        for at in (254, 255, 256, 0, 499):
            reader.seek(at)
            assert sequences(reader) == list(range(at, 500))


def test_a_block_larger_than_a_range_is_read(path, tmp_path, counting):
    big = random.Random(1).randbytes(3_000_000)
    with jlog.Writer(path, **OPTIONS, retention=jlog.Retention(archive=(tmp_path / "archive").as_uri())) as writer:
        append(writer, 100)
        writer.append(big)
        append(writer, 100)
        writer.roll()
        read_away(path, "billing")
        jlog.Journal(path).clean()
    with jlog.Reader(f"counting://{next((tmp_path / 'archive').iterdir())}") as reader:
        for start in (99, 100, 101, 0):
            reader.seek(start)
            found = list(reader.values())
            assert (len(found), big in found) == (201 - start, start <= 100)


# --- Without an index ---------------------------------------------------------------------------------------------


def spoiled(content, kind):
    if kind == "damaged":
        return content[:-3] + b"?" + content[-2:]
    if kind == "cut":
        return content[:100]
    if kind == "empty":
        return b""
    uuid = content[16:32]
    entries = parse_index(content, 1000, uuid).entries
    if kind == "other":
        return index_content(SparseIndex(entries), 0, uuid)
    inner = entries[1:-1]
    if kind == "offsets":
        inner = [(first, offset + 8, latest_us) for first, offset, latest_us in inner]
    if kind == "sequences":
        inner = [(first + 1, offset, latest_us) for first, offset, latest_us in inner]
    return index_content(SparseIndex([entries[0], *inner, entries[-1]]), 1000, uuid)


@pytest.mark.parametrize("kind", ["missing", "damaged", "cut", "empty", "other", "offsets", "sequences"])
def test_a_wrong_index_costs_bytes_and_no_records(url, folder, counting, kind):
    index = folder / f"{1000:020d}.idx"
    if kind == "missing":
        index.unlink()  # as an earlier version archives
    else:
        index.write_bytes(spoiled(index.read_bytes(), kind))
    with jlog.Reader(url) as reader:
        assert sequences(reader) == list(range(2000))
        for start in (1500, 1001, 999, 1999):
            reader.seek(start)
            assert sequences(reader) == list(range(start, 2000))
        reader.seek(datetime.fromtimestamp(1700, timezone.utc))
        assert reader.position == 1700
        reader.seek(2000)
        assert [record.sequence for record in reader.read_backward(1200)] == list(range(1999, 799, -1))
    found = Archive(url).verify()
    if kind in ("damaged", "cut", "empty", "other"):
        assert [(damage.path, damage.records_lost) for damage in found] == [(f"{url}/{index.name}", 0)]
    else:
        assert found == []


def test_cleaning_again_adds_a_missing_index(path, tmp_path, counting):
    """An earlier version, or a killed process, has archived the segment and not removed it."""
    target = tmp_path / "archive"
    with jlog.Writer(path, **OPTIONS, retention=jlog.Retention(archive=target.as_uri())) as writer:
        append(writer, 1000)
        writer.roll()
        segment = jlog.Journal(path).segments()[0]
        Archive(target.as_uri(), journal=str(path)).store(segment)
        (folder,) = target.iterdir()
        (index,) = files(folder, "idx")
        content = index.read_bytes()
        index.unlink()
        changed = files(folder, "json")[0].stat().st_mtime_ns
        for left in (None, b"", content[:-1] + b"?"):
            if left is not None:
                index.write_bytes(left)
            Archive(target.as_uri(), journal=str(path)).store(segment)
            assert index.read_bytes() == content
        assert files(folder, "json")[0].stat().st_mtime_ns == changed


def test_many_segments_are_listed_once(path, tmp_path, counting):
    archive(path, (tmp_path / "archive").as_uri(), *[5] * 20)
    with jlog.Reader(f"counting://{next((tmp_path / 'archive').iterdir())}") as reader:
        before = counting.listings
        records = iter(reader)
        assert [next(records).sequence for _ in range(100)] == list(range(100))
        assert counting.listings == before
        assert list(records) == []
        assert counting.listings == before + 1


def test_segments_that_were_removed_since_they_were_listed_are_lost(path, tmp_path, counting):
    archive(path, (tmp_path / "archive").as_uri(), *[5] * 5)
    (folder,) = (tmp_path / "archive").iterdir()
    with jlog.Reader(f"counting://{folder}") as reader:
        records = iter(reader)
        assert next(records).sequence == 0
        for file in [*folder.glob(f"{5:020d}.*"), *folder.glob(f"{10:020d}.*")]:
            file.unlink()
        with pytest.raises(jlog.PositionLost) as caught:
            list(records)
        reader.seek(caught.value.first_sequence)
        assert sequences(reader) == list(range(15, 25))


# --- Damage and failures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [120, 9000, 300_000, 700_000])
def test_damage_far_away_is_found_and_skipped_as_it_is_nearby(url, folder, at):
    flip(files(folder, "seg")[0], at)

    def read_past(where):
        told, found = [], []
        with jlog.Reader(where) as reader:
            records = iter(reader)
            while True:
                try:
                    found += [record.sequence for record in records]
                    break
                except jlog.CorruptJournal as error:
                    damage = reader.skip_damage()
                    told.append(
                        (
                            damage.path,
                            error.path == damage.path,
                            error.offset,
                            error.reason,
                            damage.first_sequence,
                            damage.records_lost,
                        )
                    )
        assert all(path.startswith(where) for path, *_ in told)
        return [(Path(path).name, *rest) for path, *rest in told], found

    nearby = read_past(folder.as_uri())
    assert nearby[0][0][:2] == (files(folder, "seg")[0].name, True)
    assert read_past(url) == nearby


def test_a_segment_that_was_cut_off_far_away_is_damage(url, folder):
    os.truncate(files(folder, "seg")[1], 500_000)
    with jlog.Reader(url) as reader:
        found = []
        with pytest.raises(jlog.CorruptJournal, match=files(folder, "seg")[1].name):
            found += (record.sequence for record in reader)
        assert reader.position == 1000
    with pytest.raises(jlog.CorruptJournal), jlog.Reader(url, start=1900) as reader:
        list(reader)


def test_a_store_that_sends_too_little_is_told(url, counting):
    with jlog.Reader(url) as reader:
        values = reader.values()
        found = [next(values) for _ in range(10)]
        counting.lacking = 1
        with pytest.raises(jlog.JournalError, match="fewer or more bytes than requested") as caught:
            found += values
        assert not isinstance(caught.value, jlog.CorruptJournal)
        assert reader.position == len(found)
        found += values
        assert found == [value_of(number) for number in range(2000)]


def test_a_store_that_sends_half_a_segment_is_told(url, folder, counting):
    """Its other half is not damage, which a reader could skip."""
    for index in files(folder, "idx"):
        index.unlink()
    with jlog.Reader(url, start=500) as reader:
        counting.lacking = 500_000
        with pytest.raises(jlog.JournalError, match="ended before the end of the file") as caught:
            reader.seek(1500)
        assert not isinstance(caught.value, jlog.CorruptJournal)
        assert sequences(reader) == list(range(500, 2000))


def test_skipping_where_there_is_no_damage_is_refused(url):
    with jlog.Reader(url, start=300) as reader:
        with pytest.raises(jlog.JournalError, match="there is no damage at sequence 300"):
            reader.skip_damage()
        assert sequences(reader) == list(range(300, 2000))


def test_nothing_is_left_of_what_was_fetched(url, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with jlog.Reader(url) as reader:
        next(iter(reader))
        (copy,) = (tmp_path / "temporary").iterdir()
        assert sum(file.stat().st_blocks * 512 for file in copy.iterdir()) < 200_000
        assert sequences(reader) == list(range(1, 2000))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_restored_journal_needs_no_archived_index(url, folder, tmp_path):
    for index in files(folder, "idx"):
        index.write_bytes(b"?")
    jlog.archive.restore(url, tmp_path / "back")
    with jlog.Reader(tmp_path / "back", start=1500) as reader:
        assert sequences(reader) == list(range(1500, 2000))
    assert jlog.Journal(tmp_path / "back").verify().ok
