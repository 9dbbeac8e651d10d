"""One program, two backends: what holds for both, and nothing in it looks at which one it has."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from datetime import datetime, timedelta, timezone

import polars
import pyarrow
import pytest

import jlog
from jlog.urls import create_journal, delete_journal, open_journal, open_reader, open_writer
from kafka.witness import numbered
from patience import HUNG_SECONDS

BEGIN_US = 1_700_000_000_000_000


@pytest.fixture(params=["file", "kafka"])
def place(request, tmp_path):
    """The URL of an empty journal."""
    if request.param == "file":
        url = f"file:{tmp_path / 'journal'}"
        create_journal(url, retention=jlog.Retention(delete_read=False))
        return url
    witness, topic = request.getfixturevalue("witness"), request.getfixturevalue("topic")
    return witness.make(topic, retention_ms=-1)


@pytest.fixture
def writer(place):
    with open_writer(place) as writer:
        yield writer


@pytest.fixture
def ten(place, writer):
    """Ten records, a day apart."""
    for day in range(10):
        writer.append(b"%d" % day, timestamp_us=BEGIN_US + day * 86_400_000_000)
    writer.flush()
    return place


def at(day):
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=BEGIN_US, days=day)


def values(records):
    return [record.value for record in records]


# --- Writing --------------------------------------------------------------------------------------------------------


def test_a_record_has_all_that_was_written(writer, place):
    writer.append(b"v", key=b"k", headers=[("h", b"1"), ("none", None)], timestamp_us=BEGIN_US)
    writer.flush()
    with open_reader(place) as reader:
        (record,) = reader
    assert (record.value, record.key, record.sequence, record.timestamp_us) == (b"v", b"k", 0, BEGIN_US)
    assert list(record.headers) == [("h", b"1"), ("none", None)]
    assert record.timestamp == at(0)


def test_values_and_keys_may_be_null_or_empty(writer, place):
    writer.append(None, key=b"k")
    writer.append(b"", key=b"")
    writer.append(b"x")
    writer.flush()
    with open_reader(place) as reader:
        found = [(record.value, record.key, list(record.headers)) for record in reader]
    assert found == [(None, b"k", []), (b"", b"", []), (b"x", None, [])]


@pytest.mark.parametrize("make", [bytearray, memoryview], ids=["bytearray", "memoryview"])
def test_any_contiguous_bytes_are_taken(writer, place, make):
    writer.append(make(b"value"), key=make(b"key"), headers=[("h", make(b"1"))])
    writer.flush()
    with open_reader(place) as reader:
        (record,) = reader
    assert (record.value, record.key, list(record.headers)) == (b"value", b"key", [("h", b"1")])


WRONG = [
    ("text", {}),
    (1, {}),
    (b"v", {"key": "text"}),
    (b"v", {"headers": [("h", "text")]}),
    (b"v", {"headers": [(b"h", b"1")]}),
]


@pytest.mark.parametrize(("value", "more"), WRONG)
def test_a_value_that_is_not_bytes_is_a_type_error(writer, place, value, more):
    """Nothing is written."""
    with pytest.raises(TypeError):
        writer.append(value, **more)
    writer.append(b"good")
    writer.flush()
    with open_reader(place) as reader:
        assert values(reader) == [b"good"]


def test_extend_appends_columns(writer, place):
    writer.extend(
        [b"a", None, b"c"],
        keys=[b"k", None, None],
        headers=[None, [("h", b"1")], None],
        timestamps_us=[BEGIN_US, BEGIN_US + 1000, BEGIN_US + 2000],
    )
    writer.extend([])
    writer.flush()
    with open_reader(place) as reader:
        found = [(r.value, r.key, list(r.headers), r.timestamp_us - BEGIN_US) for r in reader]
    assert found == [(b"a", b"k", [], 0), (None, None, [("h", b"1")], 1000), (b"c", None, [], 2000)]


def test_columns_of_unequal_length_are_refused_as_a_whole(writer, place):
    with pytest.raises(ValueError):  # noqa: PT011
        writer.extend([b"a", b"b"], keys=[b"k"])
    writer.flush()
    with open_reader(place) as reader:
        assert values(reader) == []


def test_a_bad_record_among_many_leaves_none_of_them(writer, place):
    with pytest.raises(TypeError):
        writer.extend([b"a", "text", b"c"])
    writer.flush()
    with open_reader(place) as reader:
        assert values(reader) == []


def test_one_writer_keeps_its_order_and_threads_may_share_it(writer, place):
    threads = [threading.Thread(target=lambda t=t: [writer.append(b"%d:%d" % (t, n)) for n in range(500)]) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.flush()
    with open_reader(place) as reader:
        found = [tuple(map(int, value.split(b":"))) for value in reader.values()]
    for t in range(4):
        assert [n for thread, n in found if thread == t] == list(range(500))


def test_two_writers_write_to_one_place(writer, place):
    with open_writer(place) as other:
        writer.append(b"a")
        writer.flush()
        other.append(b"b")
    with open_reader(place) as reader:
        assert values(reader) == [b"a", b"b"]


def test_a_writer_flushes_when_it_closes_and_then_takes_nothing(place):
    writer = open_writer(place)
    writer.append(b"a")
    writer.close()
    writer.close()
    for call in (lambda: writer.append(b"b"), lambda: writer.extend([b"b"]), writer.flush):
        with pytest.raises(jlog.JournalClosed):
            call()
    with open_reader(place) as reader:
        assert values(reader) == [b"a"]


def test_a_writer_is_pickled_as_what_opens_it_again(writer, place):
    with pickle.loads(pickle.dumps(writer)) as other:
        other.append(b"a")
    with open_reader(place) as reader:
        assert values(reader) == [b"a"]


def test_a_value_that_is_too_large_is_refused(place):
    """Nothing of it is left."""
    with open_writer(place) as writer:
        with pytest.raises(jlog.RecordTooLarge):
            writer.append(bytes((1 << 30) + 1))
        writer.append(b"good")
    with open_reader(place) as reader:
        assert values(reader) == [b"good"]


def test_next_sequence_is_the_end(writer, place):
    assert writer.next_sequence == 0
    writer.extend(numbered(5))
    writer.flush()
    assert writer.next_sequence == 5


def test_a_fork_closes_the_childs_reader_only(writer, ten):
    """The parent's reader goes on, and so does its writer."""
    with open_reader(ten, "billing") as reader:
        next(iter(reader))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for call in (reader.read, lambda: reader.position):
                    with pytest.raises(jlog.JournalClosed):
                        call()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert len(list(reader)) == 9
        reader.commit()
    writer.append(b"10")
    writer.flush()
    with open_reader(ten) as reader:
        assert values(reader) == numbered(11)


def test_a_codec_takes_objects_and_gives_them_back(place):
    codec = jlog.typed.json(dict, list)
    with open_writer(place, codec=codec) as writer:
        writer.append({"cups": 2}, headers=[("h", b"1")])
        writer.extend([[1], None], headers=[None, [("h", b"2")]])
        with pytest.raises(TypeError, match="stores no bytes"):
            writer.append(b"{}")
    with open_writer(place) as plain:
        plain.append(b"two cups")
    with open_reader(place, codec=codec) as reader:
        first, second, third, other = reader
        assert [first.decoded, second.decoded, third.decoded] == [{"cups": 2}, [1], None]
        assert [list(record.headers) for record in (first, second, third)] == [
            [("h", b"1"), ("jlog.type", b"dict")],
            [("jlog.type", b"list")],
            [("h", b"2")],
        ]
        with pytest.raises(jlog.DecodeError, match="record 3 cannot be decoded") as caught:
            assert other.decoded
        assert caught.value.sequence == 3
        reader.seek(0)
        assert next(reader.follow(timeout=HUNG_SECONDS)).decoded == {"cups": 2}
        reader.seek(0)
        batch = reader.read(3, timeout=HUNG_SECONDS)
        assert batch.decoded() == [record.decoded for record in batch] == [{"cups": 2}, [1], None][: len(batch)]
        assert batch[0].decoded == batch[:1][0].decoded == {"cups": 2}
    with open_reader(place) as reader:
        record = next(iter(reader))
        with pytest.raises(jlog.JournalError, match="only a reader with a codec decodes"):
            assert record.decoded


# --- Reading --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["billing", None], ids=["named", "anonymous"])
def name(request):
    return request.param


def test_an_empty_place_has_nothing(place, name):
    with open_reader(place, name) as reader:
        assert values(reader) == list(reader.values()) == []
        assert len(reader.read()) == 0
        assert (reader.position, reader.lag) == (0, 0)


STARTS = {
    "begin": ("begin", 0),
    "end": ("end", 10),
    "middle": (4, 4),
    "after the last": (10, 10),
    "a time": (at(4), 4),
    "before a time": (at(4) - timedelta(milliseconds=1), 4),
    "after a time": (at(4) + timedelta(milliseconds=1), 5),
    "before all": (at(-1), 0),
    "after all": (at(100), 10),
    "checkpoint": ("before-batch", 7),
}


@pytest.mark.parametrize(("start", "expected"), STARTS.values(), ids=STARTS.keys())
def test_it_starts_where_it_is_told(ten, name, start, expected):
    if start == "before-batch":
        open_journal(ten).set_checkpoint("before-batch", 7)
    with open_reader(ten, name, start=start) as reader:
        assert (reader.position, reader.lag) == (expected, 10 - expected)
        assert [record.sequence for record in reader] == list(range(expected, 10))


REFUSED = {
    "naive": (datetime(2024, 1, 1), ValueError),  # noqa: DTZ001
    "beyond the end": (11, ValueError),
    "negative": (-1, ValueError),
    "no checkpoint": ("nowhere", jlog.CheckpointNotFound),
    "no name": ("no/name", ValueError),
    "float": (1.5, TypeError),
    "bool": (True, TypeError),
    "None": (None, TypeError),
}


@pytest.mark.parametrize(("start", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_an_impossible_start_is_refused_and_makes_no_subscriber(ten, name, start, error):
    with pytest.raises(error):
        open_reader(ten, name, start=start)
    assert open_journal(ten).subscribers() == {}


BAD_NAMES = ["", "a/b", ".hidden", "begin", "end", "12", "2026-01-01", "a\nb", "x" * 201]


@pytest.mark.parametrize("bad", BAD_NAMES)
def test_a_name_that_is_none_is_refused(ten, bad):
    with pytest.raises(ValueError):  # noqa: PT011
        open_reader(ten, bad)


def test_start_applies_only_to_a_new_subscriber(ten):
    with open_reader(ten, "billing", start=4) as reader:
        next(iter(reader))
        reader.commit()
    with open_reader(ten, "billing", start="begin") as reader:
        assert (reader.position, reader.committed) == (5, 5)


def test_create_false_wants_a_subscriber_that_is_there(ten):
    with pytest.raises(jlog.SubscriberNotFound, match="billing"):
        open_reader(ten, "billing", create=False)
    open_journal(ten).add_subscriber("billing", start=3)
    with open_reader(ten, "billing", create=False) as reader:
        assert reader.position == 3


def test_iteration_ends_at_the_end_it_began_with(writer, ten, name):
    """Iterating again goes on from there."""
    with open_reader(ten, name) as reader:
        found = []
        for record in reader:
            found.append(record.sequence)
            writer.append(b"more")
            writer.flush()
        assert found == list(range(10))
        assert [record.sequence for record in reader] == list(range(10, 20))
        assert values(reader) == []


def test_position_moves_with_every_record_handed_out(ten, name):
    with open_reader(ten, name) as reader:
        for record in reader:
            assert reader.position == record.sequence + 1
            assert reader.lag == 9 - record.sequence


def test_values_are_the_same_without_records_around_them(ten, name):
    with open_reader(ten, name) as reader:
        assert list(reader.values()) == numbered(10)
        assert reader.position == 10


def test_a_batch_has_no_more_than_asked_for_and_at_least_one(writer, place, name):
    writer.extend([bytes(1000)] * 100)
    writer.flush()
    with open_reader(place, name) as reader:
        assert len(reader.read(max_records=7)) == 7
        batch = reader.read(max_bytes=3500)
        assert 1 <= len(batch) <= 3
        assert len(reader.read(max_bytes=1)) == 1
        assert reader.position == 8 + len(batch)
        for limits in ({"max_records": 0}, {"max_bytes": 0}):
            with pytest.raises(ValueError):  # noqa: PT011
                reader.read(**limits)


def test_a_batch_is_a_sequence_of_records(ten):
    with open_reader(ten) as reader:
        batch = reader.read()
    assert (len(batch), batch.values()) == (10, numbered(10))
    assert [record.sequence for record in batch] == list(range(10))
    assert (batch[0].value, batch[-1].value, [r.value for r in batch[2:4]]) == (b"0", b"9", [b"2", b"3"])
    with pytest.raises(IndexError):
        batch[10]


def test_a_batch_becomes_arrow(writer, place):
    writer.append(b"v", key=b"k", headers=[("h", b"1"), ("none", None)], timestamp_us=BEGIN_US)
    writer.append(None)
    writer.flush()
    with open_reader(place) as reader:
        batch = reader.read().to_arrow()
    assert batch.schema.names == ["sequence", "timestamp", "key", "value", "headers"]
    times = pyarrow.timestamp("us", tz="UTC")
    assert batch.schema.types[:4] == [pyarrow.int64(), times, pyarrow.binary(), pyarrow.binary()]
    header = batch.schema.field("headers").type.value_type
    assert [(field.name, field.type) for field in header] == [
        ("key", pyarrow.string()),
        ("value", pyarrow.binary()),
    ]
    first, second = batch.to_pylist()
    assert (first["sequence"], first["timestamp"], first["key"], first["value"]) == (0, at(0), b"k", b"v")
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "none", "value": None}]
    assert (second["sequence"], second["value"], second["headers"]) == (1, None, None)


def test_reading_waits_as_long_as_it_is_told(ten, writer, name):
    with open_reader(ten, name, start="end") as reader:
        assert len(reader.read(timeout=0.1)) == 0
        thread = threading.Thread(target=lambda: (writer.append(b"more"), writer.flush()))
        thread.start()
        assert reader.read(timeout=HUNG_SECONDS).values() == [b"more"]
        thread.join()


def test_following_ends_after_a_while_without_records(ten, writer, name):
    """Records are returned as they come."""
    with open_reader(ten, name, start=8) as reader:
        found = []
        for record in reader.follow(timeout=1):
            found.append(record.value)
            if len(found) < 5:
                writer.append(b"more")
                writer.flush()
        assert found == [b"8", b"9", b"more", b"more", b"more", b"more"]


def test_following_in_an_event_loop(ten, writer, name):
    async def follow(reader):
        found = []
        async for record in reader.follow_async(timeout=1):
            found.append(record.value)
            if len(found) < 4:
                await asyncio.to_thread(lambda: (writer.append(b"more"), writer.flush()))
        return found

    with open_reader(ten, name, start=9) as reader:
        assert asyncio.run(follow(reader)) == [b"9", b"more", b"more", b"more"]


def test_a_position_that_moves_while_a_record_is_not_due_counts(place, writer):
    """A coroutine of the same loop may move it."""

    async def follow(reader):
        following = reader.follow_async(pace=1)
        found = [(await anext(following)).value]
        late = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)  # it waits until the second record is due
        reader.seek(0)
        return [*found, (await late).value]

    writer.extend([b"first", b"late"], timestamps_us=[BEGIN_US, BEGIN_US + 500_000])
    writer.flush()
    with open_reader(place) as reader:
        assert asyncio.run(follow(reader)) == [b"first", b"first"]


def test_an_event_loop_ends_though_a_reader_still_waited_in_it(ten, writer, name):
    async def give_up(reader):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(reader.follow_async()), 0.5)

    with open_reader(ten, name, start="end") as reader:
        asyncio.run(give_up(reader))
        writer.append(b"more")
        writer.flush()
        assert values(reader.read(timeout=HUNG_SECONDS)) == [b"more"]


def test_reading_backward_goes_from_the_position_and_moves_it(ten, name):
    with open_reader(ten, name, start=6) as reader:
        assert values(reader.read_backward(4)) == [b"5", b"4", b"3", b"2"]
        assert reader.position == 2
        assert values(reader.read_backward(100)) == [b"1", b"0"]
        assert reader.read_backward(1) == []
        assert values(reader) == numbered(10)


def test_seek_moves_the_position_and_not_what_is_committed(ten):
    with open_reader(ten, "billing") as reader:
        for to, expected in (("end", 10), (3, 3), (at(5), 5), ("begin", 0), (10, 10)):
            reader.seek(to)
            assert reader.position == expected
            assert [record.sequence for record in reader] == list(range(expected, 10))
        assert reader.committed == 0
        for bad in (11, -1, "a-checkpoint"):
            with pytest.raises(ValueError):  # noqa: PT011
                reader.seek(bad)


# --- Positions ------------------------------------------------------------------------------------------------------


def test_reading_resumes_at_the_last_commit(ten):
    with open_reader(ten, "billing") as reader:
        records = iter(reader)
        for _ in range(4):
            next(records)
        reader.commit()
        next(records)
    with open_reader(ten, "billing") as reader:
        assert (reader.position, reader.committed, reader.lag) == (4, 4, 6)
        reader.commit(8, durable=True)
        assert reader.committed == 8
        reader.commit(2)
        assert reader.committed == 2
        for bad, error in ((11, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
            with pytest.raises(error):
                reader.commit(bad)


def test_an_anonymous_reader_commits_nothing(ten):
    with open_reader(ten) as reader:
        for call in (reader.commit, lambda: reader.committed, lambda: reader.rewind("x")):
            with pytest.raises(jlog.JournalError, match="anonymous"):
                call()


def test_a_name_belongs_to_one_reader_at_a_time(ten):
    with open_reader(ten, "billing"):
        with pytest.raises(jlog.SubscriberBusy):
            open_reader(ten, "billing")
        for call in (
            lambda: open_journal(ten).set_subscriber("billing", "end"),
            lambda: open_journal(ten).remove_subscriber("billing"),
        ):
            with pytest.raises(jlog.SubscriberBusy):
                call()
        with open_reader(ten, "shipping") as other:
            assert other.position == 0
        assert {n: at.busy for n, at in open_journal(ten).subscribers().items()} == {
            "billing": True,
            "shipping": False,
        }
    with open_reader(ten, "billing") as reader:
        assert reader.position == 0


def test_a_checkpoint_is_a_place_to_come_back_to(ten):
    with open_reader(ten, "billing") as reader:
        reader.seek(4)
        reader.checkpoint("before-batch")
        assert len(list(reader)) == 6
        reader.commit()
        reader.rewind("before-batch")
        assert (reader.position, reader.committed) == (4, 4)
        assert [record.sequence for record in reader] == list(range(4, 10))
        reader.checkpoint("before-batch")
        with pytest.raises(jlog.CheckpointNotFound, match="before-batch"):
            reader.rewind("nowhere")
    assert {n: at.sequence for n, at in open_journal(ten).checkpoints().items()} == {"before-batch": 10}
    with open_reader(ten, start="before-batch") as reader:
        assert reader.position == 10


def test_a_closed_reader_hands_out_nothing_and_its_name_is_free(ten):
    reader = open_reader(ten, "billing")
    reader.close()
    reader.close()
    for call in (
        reader.read,
        lambda: list(reader),
        reader.commit,
        lambda: reader.position,
        lambda: reader.seek(0),
    ):
        with pytest.raises(jlog.JournalClosed):
            call()
    with open_reader(ten, "billing"):
        pass


def test_a_reader_cannot_be_pickled(ten):
    with open_reader(ten) as reader, pytest.raises(TypeError, match="open one where"):
        pickle.dumps(reader)


# --- The journal itself ---------------------------------------------------------------------------------------------


def test_a_place_gives_its_sequences_and_its_length(ten):
    journal = open_journal(ten)
    assert (journal.first_sequence, journal.next_sequence, len(journal)) == (0, 10, 10)
    assert journal.find(at(4)) == 4
    info = journal.info()
    assert (info["first_sequence"], info["next_sequence"], info["records"]) == (0, 10, 10)
    assert (info["subscribers"], info["checkpoints"], info["skipped"]) == ([], [], [])


def test_positions_are_kept_without_reading(ten):
    journal = open_journal(ten)
    journal.add_subscriber("billing", start=3)
    journal.add_subscriber("copy", copy_of="billing")
    with pytest.raises(jlog.SubscriberExists):
        journal.add_subscriber("billing")
    with pytest.raises(jlog.SubscriberNotFound):
        journal.add_subscriber("other", copy_of="nobody")
    journal.set_checkpoint("noon", at(6))
    journal.set_subscriber("billing", "end")
    journal.rewind("copy", "noon")
    assert {n: (at.sequence, at.lag) for n, at in journal.subscribers().items()} == {
        "billing": (10, 0),
        "copy": (6, 4),
    }
    assert {n: (at.sequence, at.lag) for n, at in journal.checkpoints().items()} == {"noon": (6, 4)}
    journal.remove_checkpoint("noon")
    journal.remove_subscriber("copy")
    assert (list(journal.subscribers()), journal.checkpoints()) == (["billing"], {})
    for call, error in (
        (lambda: journal.rewind("billing", "noon"), jlog.CheckpointNotFound),
        (lambda: journal.remove_checkpoint("noon"), jlog.CheckpointNotFound),
        (lambda: journal.set_subscriber("copy", 0), jlog.SubscriberNotFound),
        (lambda: journal.remove_subscriber("copy"), jlog.SubscriberNotFound),
        (lambda: journal.rewind("copy", "noon"), jlog.SubscriberNotFound),
    ):
        with pytest.raises(error):
            call()


def test_a_missing_journal_is_not_made_by_looking(place):
    missing = place + "-missing"
    for call in (
        lambda: open_journal(missing),
        lambda: open_reader(missing),
        lambda: open_writer(missing, create=False),
        lambda: delete_journal(missing),
        lambda: open_journal(missing),
    ):
        with pytest.raises(jlog.JournalNotFound):
            call()


def test_it_is_made_once_and_deleted(place):
    other = place + "-other"
    create_journal(other, segment_bytes=4 << 20)
    with pytest.raises(jlog.JournalExists):
        create_journal(other)
    with open_writer(other) as writer:
        writer.append(b"x")
    delete_journal(other)
    with pytest.raises(jlog.JournalNotFound):
        open_journal(other)


def test_the_first_writer_makes_it(place):
    with open_writer(place + "-new", compression="lz4") as writer:
        writer.append(b"x")
    with open_reader(place + "-new") as reader:
        assert values(reader) == [b"x"]


# --- Arrow ----------------------------------------------------------------------------------------------------------


def test_a_reader_and_a_scan_are_arrow_data(ten, writer):
    expected = [b"%d" % day for day in range(10)]
    with open_reader(ten) as reader:
        stream = pyarrow.RecordBatchReader.from_stream(reader)
        assert reader.position == 0
        writer.append(b"later")
        writer.flush()
        assert stream.read_all().column("value").to_pylist() == expected
        assert reader.position == 10
        assert pyarrow.table(reader).column("value").to_pylist() == [b"later"]
    for start, end, days in (("begin", 10, range(10)), (at(2), at(5), range(2, 5)), (7, "end", [7, 8, 9])):
        found = jlog.scan(ten, start=start, end=end).to_arrow().column("value").to_pylist()
        assert found[: len(days)] == [b"%d" % day for day in days]
    late = jlog.scan(ten, text=True).to_polars().filter(polars.col("timestamp") >= at(8), polars.col("sequence") < 10)
    assert late.collect()["value"].to_list() == ["8", "9"]


def test_extend_arrow_takes_what_a_reader_gives(ten, writer):
    with open_reader(ten) as reader:
        writer.extend_arrow(reader.read(5))
        writer.flush()
        found = list(reader)
    assert [(record.value, record.timestamp_us) for record in found[5:]] == [
        (b"%d" % day, BEGIN_US + day * 86_400_000_000) for day in range(5)
    ]
