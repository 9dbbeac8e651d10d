"""A Reader and a RecordBatch are Arrow data for every library, and Writer.extend_arrow takes theirs."""

import gc
import os
import sys
import weakref
from types import SimpleNamespace

import duckdb
import pandas
import polars
import pyarrow
import pytest

import jlog
from behaviour.arrow_columns import HEADERS, SCHEMA
from behaviour.journals import SMALL, damage_block, fill, records, values
from elsewhere import python
from jlog._core.records import arrow as core

TEXT_MAP = pyarrow.map_(pyarrow.string(), pyarrow.string())
LIBRARIES = {
    "pyarrow": lambda reader: pyarrow.table(reader).column("value").to_pylist(),
    "polars": lambda reader: polars.DataFrame(reader)["value"].to_list(),
    "duckdb": lambda reader: [row[0] for row in duckdb.sql("select value from reader").fetchall()],
}
if hasattr(pandas.DataFrame, "from_arrow"):  # since pandas 3, which needs Python 3.11
    LIBRARIES["pandas"] = lambda reader: pandas.DataFrame.from_arrow(reader)["value"].to_list()


def stream_of(reader, schema=None):
    return pyarrow.RecordBatchReader.from_stream(reader, schema=schema)


def fields(**types):
    return pyarrow.schema(types)


# --- Out: a stream of a Reader -----------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_reads_a_reader_to_the_end(path, writer, library):
    fill(writer, 300)
    with jlog.Reader(path) as reader:
        assert LIBRARIES[library](reader) == values(path)
        assert (reader.position, LIBRARIES[library](reader)) == (300, [])
        writer.append(b"more")
        assert LIBRARIES[library](reader) == [b"more"]


def test_an_error_whose_text_cannot_be_made_is_not_the_end_of_a_stream():
    class Unspeakable(Exception):
        def __str__(self):
            raise MemoryError

    def batches():
        raise Unspeakable
        yield

    stream = SimpleNamespace(__arrow_c_stream__=lambda requested_schema=None: core.stream_of((), batches()))
    with pytest.raises(OSError, match=r"^$"):
        pyarrow.RecordBatchReader.from_stream(stream).read_all()


def test_asking_for_a_stream_or_its_schema_and_releasing_it_move_nothing(path, writer):
    fill(writer, 10)
    with jlog.Reader(path) as reader:
        for _ in range(3):
            capsule = reader.__arrow_c_stream__()
            assert pyarrow.schema(reader) == stream_of(reader).schema == SCHEMA
            del capsule
        assert reader.position == 0
        assert pyarrow.table(reader).num_rows == 10


def test_only_what_is_taken_moves_the_position_and_the_next_stream_goes_on(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"x"] * 150_000)
    with jlog.Reader(path) as reader:
        batch = stream_of(reader).read_next_batch()
        assert 0 < batch.num_rows == reader.position < 150_000
        assert pyarrow.table(reader).column("sequence").to_pylist() == list(range(batch.num_rows, 150_000))


def test_it_ends_where_the_journal_ended_when_it_was_asked_for(path, writer):
    fill(writer, 10)
    with jlog.Reader(path) as reader:
        stream = stream_of(reader)
        fill(writer, 10)
        assert len(list(reader.read(5))) == 5  # which sees the journal's end anew
        assert stream.read_all().column("sequence").to_pylist() == list(range(5, 10))
        assert reader.position == 10


def test_it_outlives_the_variable_of_its_reader_and_lets_it_go_afterwards(path, writer):
    fill(writer, 10)
    reader = jlog.Reader(path, "billing")
    alive = weakref.ref(reader)
    stream = stream_of(reader)
    del reader
    gc.collect()
    assert stream.read_all().num_rows == 10
    with pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(path, "billing")
    del stream
    gc.collect()
    assert alive() is None
    jlog.Reader(path, "billing").close()


def test_a_batch_outlives_its_stream_and_its_journal(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 10)
    with jlog.Reader(path) as reader:
        batches = list(stream_of(reader))
    expected = values(path)
    del reader
    jlog.Journal.delete(path)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == expected


def test_a_closed_reader_ends_its_stream_with_an_error(path, writer):
    fill(writer, 10)
    with jlog.Reader(path) as reader:
        stream = stream_of(reader)
    with pytest.raises(ValueError, match=r"JournalClosed: .*this reader is closed"):
        stream.read_all()
    with pytest.raises(jlog.JournalClosed):
        reader.__arrow_c_stream__()


@pytest.mark.damage
def test_damage_reaches_the_consumer_with_its_text_after_the_records_before_it(path):
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10) as writer:
        for _ in range(3):
            fill(writer, 10)
            writer.roll()
    damage_block(path, 1)
    with jlog.Reader(path) as reader:
        stream = stream_of(reader)
        assert stream.read_next_batch().num_rows == reader.position == 10
        for _ in range(2):  # never a silent end
            with pytest.raises(OSError, match=r"CorruptJournal: .*damaged at byte .*checksum"):
                stream.read_next_batch()
        with pytest.raises(duckdb.Error, match="checksum"):
            duckdb.sql("select count(value) from reader").fetchall()
        reader.skip_damage()
        assert polars.DataFrame(reader)["sequence"].to_list() == list(range(20, 30))


def test_a_segment_that_retention_removes_meanwhile_is_an_error_with_its_text(path):
    retention = jlog.Retention(max_bytes=1, keep_for_subscribers=False)
    with jlog.Writer(path, retention=retention, **SMALL) as writer, jlog.Reader(path) as reader:
        stream = stream_of(reader)  # asked for while it is empty
        assert stream.read_all().num_rows == 0
        fill(writer, 300)
        stream = stream_of(reader)
        writer.roll()
        jlog.Journal(path).clean()
        with pytest.raises(OSError, match=r"PositionLost: .*retention has removed"):
            stream.read_all()


def test_an_archive_is_a_stream_too(path, tmp_path):
    with jlog.Writer(path, retention=jlog.Retention(archive=f"file://{tmp_path}/archive"), **SMALL) as writer:
        fill(writer, 300)
    expected = values(path)
    with jlog.Reader(path, archive=True) as reader:
        assert polars.DataFrame(reader)["value"].to_list() == expected
    with jlog.Reader(path, "billing", start="end"):
        jlog.Journal(path).clean()
    with jlog.Reader(f"file://{tmp_path}/archive") as reader:
        found = pyarrow.table(reader).column("value").to_pylist()
    assert found
    assert found == expected[: len(found)]


# --- Out: a batch ------------------------------------------------------------------------------------------------


def test_a_batch_can_be_taken_any_number_of_times(path, writer):
    fill(writer, 10)
    with jlog.Reader(path) as reader:
        batch = reader.read()
    for _ in range(2):
        assert pyarrow.record_batch(batch) == batch.to_arrow()
        assert polars.DataFrame(batch)["value"].to_list() == batch.values()


# --- Out: requested schemas --------------------------------------------------------------------------------------


BYTES = [pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()]
TEXTS = [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()]


@pytest.mark.parametrize("type_", BYTES + TEXTS, ids=str)
def test_a_cast_that_loses_nothing_is_done(path, writer, type_):
    given = [b"", None, b"short", "Größe, longer than a view holds itself".encode()] * 3
    headers = [None, [], [("a", b"1"), ("b", None), ("a", "€ and much more than twelve".encode())], [("c", b"")]] * 3
    writer.extend(given, keys=given[::-1], headers=headers)
    lists = pyarrow.large_list(pyarrow.struct([("key", pyarrow.string_view()), ("value", type_)]))
    schema = fields(
        headers=lists, value=type_, key=type_, timestamp=pyarrow.timestamp("us", "Asia/Tokyo"), sequence=pyarrow.uint64()
    )
    with jlog.Reader(path) as reader:
        found = stream_of(reader, schema).read_all()
        reader.seek("begin")
        whole = pyarrow.table(reader)
    found.validate(full=True)
    assert found.schema == schema
    assert found.column("value").cast(pyarrow.binary()).to_pylist() == given
    assert found.column("key").cast(pyarrow.binary()).to_pylist() == given[::-1]
    assert found.column("timestamp").cast(pyarrow.int64()) == whole.column("timestamp").cast(pyarrow.int64())
    assert found.column("headers").to_pylist() == [
        [{"key": name, "value": as_type(value, type_)} for name, value in row] if row else None for row in headers
    ]


def test_a_column_that_may_have_nulls_says_so_whatever_is_requested(path, writer):
    writer.append(b"", headers={"name": None})
    writer.append(None)
    with jlog.Reader(path) as reader:
        schema = pyarrow.schema([field.with_nullable(False) for field in stream_of(reader).schema])
        answered = stream_of(reader, schema)
        table = answered.read_all()
    table.validate(full=True)
    assert [field.nullable for field in answered.schema] == [False, False, True, True, True]


def as_type(value, type_):
    return value.decode() if value is not None and type_ in TEXTS else value


@pytest.mark.parametrize("count", [3, 17, 500])
def test_in_a_map_the_last_value_of_a_name_stands(path, writer, count):
    headers = [[(f"h{number % 7}", b"%d" % number) for number in range(count)], None, [("x", None), ("y", b""), ("x", b"z")]]
    writer.extend([b""] * 3, headers=headers)
    with jlog.Reader(path) as reader:
        found = stream_of(reader, fields(headers=TEXT_MAP)).read_all()
    found.validate(full=True)
    maps = [None if row is None else dict(row) for row in found.column("headers").to_pylist()]
    assert maps == [None if row is None else {name: as_type(v, pyarrow.string()) for name, v in row} for row in headers]
    assert len(found.column("headers")[0]) == min(count, 7)


@pytest.mark.parametrize("column", ["value", "key", "headers"])
def test_a_record_that_is_not_utf8_is_refused_with_its_place(path, writer, column):
    """Also where two halves of a character stand in neighbouring records, which together are UTF-8."""
    fill(writer, 100)
    euro = "€".encode()
    for half in (euro[:1], euro[1:]):
        writer.append(
            half if column == "value" else b"",
            key=half if column == "key" else b"",
            headers=[("h", half if column == "headers" else b"")],
        )
    type_ = TEXT_MAP if column == "headers" else pyarrow.string()
    with jlog.Reader(path) as reader:
        with pytest.raises(ValueError, match=rf"{path}: the {column.rstrip('s')} of record 100 is not UTF-8"):
            stream_of(reader, fields(**{column: type_})).read_all()
        assert reader.position == 0
        with pytest.raises(ValueError, match="of record 100 is not UTF-8"):
            reader.read().__arrow_c_array__(fields(**{column: type_}).__arrow_c_schema__())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (fields(offset=pyarrow.int64()), "the column 'offset'; there are sequence, timestamp, key, value, headers"),
        (fields(sequence=pyarrow.int32()), "request int64 or uint64"),
        (fields(timestamp=pyarrow.timestamp("us")), "with a time zone"),
        (fields(timestamp=pyarrow.timestamp("s", "UTC")), "with a time zone"),
        (fields(value=pyarrow.int64()), "request binary or string"),
        (fields(headers=pyarrow.list_(pyarrow.string())), "request list<struct"),
        (pyarrow.schema([]), "at least one column"),
    ],
)
def test_a_schema_that_records_cannot_have_is_refused_at_once(path, writer, schema, message):
    with jlog.Reader(path) as reader, pytest.raises(ValueError, match=message):
        reader.__arrow_c_stream__(schema.__arrow_c_schema__())


# --- In ----------------------------------------------------------------------------------------------------------


def dictionary_of(type_):
    long = "much longer than twelve bytes"
    indices = pyarrow.array([0, 1, None, 0, 3, 2], pyarrow.int8())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["a", long, None, ""]).cast(type_)), [
        b"a", long.encode(), None, b"a", b"", None,
    ]  # fmt: skip


@pytest.mark.parametrize("type_", BYTES + TEXTS, ids=str)
def test_dictionaries_are_decoded(path, writer, type_):
    array, expected = dictionary_of(type_)
    headers = pyarrow.array([[{"key": "h", "value": b"v"}]] * 6, HEADERS)
    writer.extend_arrow(array)
    writer.extend_arrow(array.slice(1, 4))
    writer.extend_arrow(pyarrow.table({"value": pyarrow.chunked_array([array, array.slice(2)]), "key": [b"k"] * 10}))
    writer.extend_arrow(pyarrow.table({"value": array, "key": array, "headers": headers}).slice(2))
    assert values(path) == expected + expected[1:5] + expected + expected[2:] + expected[2:]
    assert [record.key for record in records(path)[-4:]] == expected[2:]


@pytest.mark.parametrize("type_", [pyarrow.binary_view(), pyarrow.string_view()], ids=str)
def test_views_are_taken_also_in_slices(path, writer, type_):
    array = pyarrow.array(["", None, "twelve bytes", "more than twelve bytes", "x" * 5000] * 3, type_)
    writer.extend_arrow(array)
    writer.extend_arrow(array.slice(3, 9))
    expected = [None if value is None else value.encode() for value in array.cast(pyarrow.string()).to_pylist()]
    assert values(path) == expected + expected[3:12]


def test_indices_that_point_outside_their_dictionary_are_refused(writer):
    for index in (3, -1, 127):
        array = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, index], pyarrow.int8()), pyarrow.array(["a"]), safe=False)
        with pytest.raises(ValueError, match="row 1: an offset points outside"):
            writer.extend_arrow(array)


def test_views_that_point_outside_their_buffer_are_refused(writer):
    views = bytearray(b"".join(pyarrow.array(["a" * 20] * 3, pyarrow.string_view()).buffers()[1].to_pybytes() for _ in "1"))
    for at, number in ((16, -1), (16, 1 << 20), (24, 7), (24, -1), (28, 1 << 20), (28, -1)):
        lying = bytearray(views)
        lying[at : at + 4] = number.to_bytes(4, "little", signed=True)
        buffers = [None, pyarrow.py_buffer(bytes(lying)), pyarrow.py_buffer(b"a" * 60)]
        with pytest.raises(ValueError, match="row 1: an offset points outside"):
            writer.extend_arrow(pyarrow.Array.from_buffers(pyarrow.string_view(), 3, buffers))


def test_a_dictionary_that_would_swell_beyond_an_extend_is_too_large(writer):
    array = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 200_000, pyarrow.int32()), pyarrow.array([b"x" * 10_000]))
    with pytest.raises(jlog.RecordTooLarge):
        writer.extend_arrow(array)
    assert writer.next_sequence == 0


def test_what_each_library_returns_is_taken(path, writer):
    headers = [("h", b"v")]
    frame = polars.DataFrame(
        {"value": [b"a", None, b"x" * 100], "key": ["k", None, ""], "headers": [[{"key": "h", "value": b"v"}], None, []]}
    )
    writer.extend_arrow(frame)
    writer.extend_arrow(frame["value"])
    writer.extend_arrow(polars.Series(["a", "b", "a"]).cast(polars.Categorical))
    writer.extend_arrow(pandas.DataFrame({"value": ["a", "b"]}))
    writer.extend_arrow(duckdb.sql("select 'duck' as value, to_timestamp(7) as timestamp, map {'h': 'v'::blob} as headers"))
    with jlog.Reader(path, start=0) as reader:
        writer.extend_arrow(reader.read(2))
        writer.extend_arrow(reader)  # up to here
    found = [(record.value, record.key, record.headers) for record in records(path)]
    first = [(b"a", b"k", headers), (None, None, []), (b"x" * 100, b"", [])]
    plain = [(value, None, []) for value in (b"a", None, b"x" * 100, b"a", b"b", b"a", b"a", b"b")]
    duck = [(b"duck", None, headers)]
    assert found == first + plain + duck + first[:2] + (first + plain + duck + first[:2])[2:]
    assert records(path)[11].timestamp_us == 7_000_000


def test_several_chunks_are_one_extend_and_an_error_of_the_stream_writes_nothing(path, writer):
    def batches():
        yield pyarrow.record_batch({"value": [b"a"]})
        raise RuntimeError("no more")

    schema = fields(value=pyarrow.binary())
    with pytest.raises(OSError, match=r"the Arrow stream failed: .*no more"):
        writer.extend_arrow(pyarrow.RecordBatchReader.from_batches(schema, batches()))
    assert writer.next_sequence == 0
    chunks = [pyarrow.record_batch({"value": [b"%d" % number]}) for number in range(5)]
    with jlog.Reader(path) as reader:
        writer.extend_arrow(pyarrow.RecordBatchReader.from_batches(schema, chunks))
        assert reader.read().values() == [b"0", b"1", b"2", b"3", b"4"]


# --- Without pyarrow ---------------------------------------------------------------------------------------------

BARE = """
import sys
import jlog
import polars
path = sys.argv[1]
with jlog.Writer(path) as writer, jlog.Reader(path) as reader:
    writer.extend_arrow(polars.DataFrame({"value": ["a", None], "key": [b"k", b""]}))
    frame = polars.DataFrame(reader)
    writer.extend_arrow(frame)
    assert polars.DataFrame(reader.read()).drop("sequence").equals(frame.drop("sequence"))
    print(frame["value"].to_list(), reader.position, "pyarrow" in sys.modules)
"""


def test_polars_alone_reads_and_writes(tmp_path, path):
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(name='pyarrow')")
    run = python(BARE, path, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert (run.stdout, run.stderr) == ("[b'a', None] 4 False\n", "")
