"""Reading: where it starts, what it hands out, and how far."""

import gc
from datetime import datetime, timedelta, timezone

import pytest

import jlog
from behaviour.journals import SMALL, fill, records, sequences, value_of, values

DAY_US = 86_400_000_000
BEGIN_US = 1_700_000_000_000_000


def at(day):
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=BEGIN_US + day * DAY_US)


@pytest.fixture
def dated(path):
    """Ten records, a day apart."""
    with jlog.Writer(path, **SMALL) as writer:
        for day in range(10):
            writer.append(value_of(day), timestamp_us=BEGIN_US + day * DAY_US)
            if day % 3 == 2:
                writer.roll()
        yield path


@pytest.fixture(params=["billing", None], ids=["named", "anonymous"])
def name(request):
    return request.param


def test_an_empty_journal_has_nothing(writer, path, name):
    with jlog.Reader(path, name) as reader:
        assert list(reader) == list(reader.values()) == []
        assert len(reader.read()) == 0
        assert (reader.position, reader.lag) == (0, 0)


def test_a_journal_that_no_writer_has_opened_yet_is_read(path, name):
    jlog.Journal.create(path)
    with jlog.Reader(path, name) as reader:
        assert list(reader) == []
        with jlog.Writer(path) as writer:
            writer.append(b"a")
            assert list(reader.values()) == [b"a"]


STARTS = {
    "begin": ("begin", 0),
    "end": ("end", 10),
    "first": (0, 0),
    "middle": (4, 4),
    "first of a segment": (6, 6),
    "after the last": (10, 10),
    "a time": (at(4), 4),
    "before a time": (at(4) - timedelta(microseconds=1), 4),
    "after a time": (at(4) + timedelta(microseconds=1), 5),
    "before all": (at(-1), 0),
    "after all": (at(100), 10),
    "another zone": (at(4).astimezone(timezone(timedelta(hours=5, minutes=30))), 4),
    "checkpoint": ("before-batch", 7),
}


@pytest.mark.parametrize(("start", "expected"), STARTS.values(), ids=STARTS.keys())
def test_it_starts_where_it_is_told(dated, name, start, expected):
    jlog.Journal(dated).set_checkpoint("before-batch", 7)
    with jlog.Reader(dated, name, start=start) as reader:
        assert reader.position == expected
        assert reader.lag == 10 - expected
        assert sequences(reader) == list(range(expected, 10))


def test_start_applies_only_to_a_new_subscriber(dated):
    with jlog.Reader(dated, "billing", start=4) as reader:
        next(iter(reader))
        reader.commit()
    with jlog.Reader(dated, "billing", start="begin") as reader:
        assert (reader.position, reader.committed) == (5, 5)


REFUSED_STARTS = {
    "naive": (datetime(2024, 1, 1), ValueError, "time zone"),  # noqa: DTZ001
    "beyond the end": (11, ValueError, "11 is beyond"),
    "negative": (-1, ValueError, "0 or more"),
    "no checkpoint": ("nowhere", jlog.CheckpointNotFound, "nowhere"),
    "no name": ("no/name", ValueError, "/"),
    "float": (1.5, TypeError, "1.5"),
    "bool": (True, TypeError, "True"),
    "None": (None, TypeError, "None"),
}


@pytest.mark.parametrize(("start", "error", "said"), REFUSED_STARTS.values(), ids=REFUSED_STARTS.keys())
def test_an_impossible_start_is_refused_and_makes_no_subscriber(dated, name, start, error, said):
    with pytest.raises(error, match=said):
        jlog.Reader(dated, name, start=start)
    assert jlog.Journal(dated).subscribers() == {}


def test_create_false_wants_a_subscriber_that_is_there(dated):
    with pytest.raises(jlog.SubscriberNotFound, match=r"billing.*none"):
        jlog.Reader(dated, "billing", create=False)
    assert jlog.Journal(dated).subscribers() == {}
    jlog.Journal(dated).add_subscriber("billing", start=3)
    with jlog.Reader(dated, "billing", create=False) as reader:
        assert reader.position == 3


def test_a_record_has_all_that_was_written(writer, path, name):
    writer.append(b"v", key=b"k", headers=[("h", b"x"), ("n", None)], timestamp_us=BEGIN_US)
    with jlog.Reader(path, name) as reader:
        (record,) = reader
    assert (record.value, record.key, record.sequence) == (b"v", b"k", 0)
    assert record.headers == [("h", b"x"), ("n", None)]
    assert record.timestamp_us == BEGIN_US
    assert record.timestamp == at(0)


def test_a_record_outlives_its_segment_and_its_reader(writer, path):
    written = fill(writer, 200)
    with jlog.Reader(path, "billing") as reader:
        kept = list(reader)
        reader.commit()
    jlog.Journal(path).clean()
    assert [record.value for record in kept] == written
    assert kept[0].headers == []


def test_a_record_that_is_kept_costs_the_garbage_collector_nothing(writer, path):
    writer.append(b"value", key=b"key", headers=[("name", b"header")])
    with jlog.Reader(path, start="begin") as reader:
        (record,) = reader
        assert not gc.is_tracked(record)


def test_a_record_cannot_be_changed_or_made(writer, path):
    writer.append(b"value")
    (record,) = records(path)
    with pytest.raises(AttributeError):
        record.value = b"other"
    with pytest.raises(TypeError, match="reading"):
        jlog.Record()


def test_records_that_were_read_twice_are_equal(writer, path):
    fill(writer, 20)
    assert records(path) == records(path)
    assert len(set(records(path) + records(path))) == 20


def test_iteration_ends_where_the_journal_ended_when_it_began(writer, path, name):
    fill(writer, 3)
    with jlog.Reader(path, name) as reader:
        found = []
        for record in reader:
            found.append(record.sequence)
            writer.append(b"more")
        assert found == [0, 1, 2]
        assert sequences(reader) == [3, 4, 5]


def test_iterating_again_goes_on(writer, path, name):
    fill(writer, 10)
    with jlog.Reader(path, name) as reader:
        assert [record.sequence for record, _ in zip(reader, range(4), strict=False)][-1] >= 3
        position = reader.position
        assert sequences(reader) == list(range(position, 10))
        assert sequences(reader) == []
        fill(writer, 2)
        assert sequences(reader) == [10, 11]


def test_position_moves_with_every_record_handed_out(writer, path, name):
    fill(writer, 100)
    with jlog.Reader(path, name) as reader:
        for record in reader:
            assert reader.position == record.sequence + 1
            assert reader.lag == 99 - record.sequence


def test_values_are_the_same_without_records_around_them(writer, path, name):
    written = [*fill(writer, 100), None, b"k", b""]
    writer.append(None)
    writer.append(b"k", key=b"k", timestamp_us=5)
    writer.append(b"")
    with jlog.Reader(path, name) as reader:
        found = reader.values()
        assert [next(found) for _ in range(30)] == written[:30]
        assert reader.position == 30
        assert [record.value for record, _ in zip(reader, range(10), strict=False)] == written[30:40]
        assert list(reader.values()) == written[reader.position :] or reader.position == 103


LENGTHS = {
    "one length": lambda _number: 40,
    "within what an allocator rounds up to": lambda number: 34 + number % 14,
    "many lengths": lambda number: (0, 1, 2, 3, 500, 15, 16, 17, 5000, 4096)[number % 10],
}
KEPT = {
    "every one": lambda _number: True,
    "every other": lambda number: number % 2 == 0,
    "some": lambda number: number % 7 < 3,
    "none": lambda _number: False,
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_a_value_stays_what_it_was_when_the_next_ones_are_read(writer, path, length, kept):
    """However it is held: as itself, by its hash, through a view."""
    written = [(b"%d." % number * 2000)[: length(number)] for number in range(2000)]
    writer.extend(written)
    found, hashes, views = {}, set(), {}
    with jlog.Reader(path) as reader:
        for number, value in enumerate(reader.values()):
            assert value == written[number]
            assert hash(value) == hash(written[number])
            if kept(number):
                found[number] = value
                hashes.add(value)
            elif number % 11 == 0:
                views[number] = memoryview(value)
    assert all(value == written[number] for number, value in found.items())
    assert hashes == {written[number] for number in found}
    assert all(view == written[number] for number, view in views.items())


def test_two_readers_of_one_journal_read_on_their_own(writer, path):
    written = fill(writer, 50)
    with jlog.Reader(path, "a") as a, jlog.Reader(path, "b") as b, jlog.Reader(path) as c:
        found = {"a": [], "b": [], "c": []}
        for left, right in zip(a, b, strict=True):
            found["a"].append(left.value)
            found["b"].append(right.value)
        found["c"] = list(c.values())
    assert found == {"a": written, "b": written, "c": written}


def test_the_open_block_is_visible_at_once(path, name):
    with jlog.Writer(path) as writer, jlog.Reader(path, name) as reader:
        for number in range(300):
            writer.append(value_of(number))
            assert list(reader.values()) == [value_of(number)]
            assert reader.lag == 0


def test_a_reader_sees_on_through_flushes_and_rolls(writer, path, name):
    with jlog.Reader(path, name) as reader:
        for number in range(200):
            writer.append(value_of(number))
            if number % 7 == 0:
                writer.flush()
            if number % 31 == 0:
                writer.roll()
            assert list(reader.values()) == [value_of(number)]


def test_a_reader_stays_when_the_writer_closes_and_another_opens(path, name):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 10)
        reader = jlog.Reader(path, name)
        assert len(list(reader)) == 10
        fill(writer, 5)
    assert sequences(reader) == [10, 11, 12, 13, 14]
    with jlog.Writer(path, precommit=64 << 10) as writer:
        fill(writer, 5)
        assert sequences(reader) == [15, 16, 17, 18, 19]
    reader.close()


def test_durable_only_hands_out_what_is_synced(writer, path, name):
    with jlog.Reader(path, name, durable_only=True) as reader:
        fill(writer, 10)
        assert list(reader) == []
        writer.flush()
        assert (list(reader), reader.lag) == ([], 10)
        writer.sync()
        assert sequences(reader) == list(range(10))
        fill(writer, 3)
        assert list(reader.values()) == []
        writer.roll()
        assert list(reader.values()) == []
        writer.sync()
        assert sequences(reader) == [10, 11, 12]


def test_durable_only_reads_to_the_end_of_a_sync_in_the_middle(path):
    with jlog.Writer(path, **SMALL) as writer, jlog.Reader(path, durable_only=True) as reader:
        for _ in range(5):
            synced = len(fill(writer, 77)) and writer.next_sequence
            writer.sync()
            fill(writer, 30)
            assert sequences(reader)[-1] == synced - 1


# --- read ---------------------------------------------------------------------------------------------------------


def test_a_batch_has_no_more_than_max_records(writer, path, name):
    written = fill(writer, 100)
    with jlog.Reader(path, name) as reader:
        sizes = []
        found = []
        while len(batch := reader.read(max_records=7)):
            sizes.append(len(batch))
            found += batch.values()
        assert found == written
        assert sizes == [7] * 14 + [2]


@pytest.mark.parametrize("max_bytes", [1, 100, 250, 1000, 5000])
def test_a_batch_has_at_most_max_bytes_and_at_least_one_record(writer, path, name, max_bytes):
    written = fill(writer, 100)
    with jlog.Reader(path, name) as reader:
        found = []
        while len(batch := reader.read(max_bytes=max_bytes)):
            assert len(batch) == 1 or sum(len(value) for value in batch.values()) <= max_bytes
            assert reader.position == len(found) + len(batch)
            found += batch.values()
    assert found == written


def test_a_batch_over_several_segments_is_a_sequence_of_records(writer, path):
    written = fill(writer, 150)
    with jlog.Reader(path) as reader:
        batch = reader.read()
    assert (len(batch), batch.values()) == (150, written)
    assert [record.value for record in batch] == written
    assert [record.sequence for record in batch] == list(range(150))
    assert (batch[0].value, batch[-1].sequence, batch[77].value) == (written[0], 149, written[77])
    assert [record.sequence for record in batch[5:20:5]] == [5, 10, 15]
    for index in (150, -151):
        with pytest.raises(IndexError):
            batch[index]
    assert "150" in repr(batch)


def test_an_empty_batch_is_false(writer, path):
    with jlog.Reader(path) as reader:
        assert not reader.read()
        assert reader.read().values() == []
        assert list(reader.read()) == []


@pytest.mark.parametrize("limits", [{"max_records": 0}, {"max_records": -1}, {"max_bytes": 0}])
def test_limits_are_at_least_1(writer, path, limits):
    with jlog.Reader(path) as reader, pytest.raises(ValueError, match="at least 1"):
        reader.read(**limits)


def test_values_of_a_batch_may_be_null(writer, path):
    writer.extend([b"a", None, b""])
    with jlog.Reader(path) as reader:
        assert reader.read().values() == [b"a", None, b""]


def test_a_batch_outlives_its_segments(writer, path):
    written = fill(writer, 200)
    with jlog.Reader(path, "billing") as reader:
        batch = reader.read()
        reader.commit()
    assert jlog.Journal(path).first_sequence > 0
    assert batch.values() == written
    assert values(path) == written[jlog.Journal(path).first_sequence :]
