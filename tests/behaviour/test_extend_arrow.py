"""extend_arrow: what extend does, from Arrow."""

import pyarrow
import pytest

import jlog
from behaviour.arrow_columns import HEADERS, SCHEMA
from behaviour.journals import SMALL, fill, records, values
from behaviour.test_extend import each_writer  # noqa: F401

BINARY = [pyarrow.binary(), pyarrow.large_binary(), pyarrow.string(), pyarrow.large_string()]
EACH_BINARY = pytest.mark.parametrize("type_", BINARY, ids=str)


def batch_of(**columns):
    return pyarrow.RecordBatch.from_pydict(columns)


def headers_of(*lists, type_=HEADERS):
    """From lists of pairs."""
    pairs = [None if one is None else [{"key": name, "value": value} for name, value in one] for one in lists]
    return pyarrow.array(pairs, type_)


# --- Values alone ------------------------------------------------------------------------------------------------


@EACH_BINARY
def test_an_array_of_each_type_gives_its_values(writer, path, type_):
    """The call returns the sequence of the first one."""
    array = pyarrow.array(["a", None, "", "dé"], pyarrow.string()).cast(type_)
    assert writer.extend_arrow(array) == 0
    assert writer.extend_arrow(array) == 4
    assert values(path) == [b"a", None, b"", "dé".encode()] * 2


def test_a_string_need_not_be_utf8(writer, path):
    writer.extend_arrow(pyarrow.array([b"\xff"]).view(pyarrow.string()))
    assert values(path) == [b"\xff"]


@EACH_BINARY
def test_a_slice_gives_its_part(writer, path, type_):
    array = pyarrow.array([None if number % 5 == 0 else str(number) for number in range(100)]).cast(type_)
    for at, size in [(0, 3), (1, 1), (7, 13), (95, 5), (50, 0)]:
        writer.extend_arrow(array.slice(at, size))
    expected = [number for at, size in [(0, 3), (1, 1), (7, 13), (95, 5)] for number in range(at, at + size)]
    assert values(path) == [None if number % 5 == 0 else b"%d" % number for number in expected]


def test_a_chunked_array_is_one_extend(writer, path):
    array = pyarrow.chunked_array([[b"a"], [], [None, b"b"]], pyarrow.binary())
    with jlog.Reader(path) as reader:
        assert writer.extend_arrow(array.slice(0, 2)) == 0
        assert writer.extend_arrow(array) == 2
        assert len(reader.read()) == 5
    assert values(path) == [b"a", None, b"a", None, b"b"]


@pytest.mark.parametrize(
    "nothing",
    [
        pyarrow.array([], pyarrow.binary()),
        pyarrow.chunked_array([], pyarrow.binary()),
        SCHEMA.empty_table(),
        pyarrow.RecordBatch.from_pylist([], SCHEMA),
    ],
    ids=["array", "chunked array", "table", "batch"],
)
def test_nothing_writes_nothing_and_returns_next_sequence(writer, path, nothing):
    writer.append(b"a")
    assert writer.extend_arrow(nothing) == 1
    assert values(path) == [b"a"]


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_larger_than_the_buffer_or_a_segment_it_is_one_block(writer, path, count):
    writer.append(b"before")
    assert writer.extend_arrow(pyarrow.array([b"x" * 500] * count)) == 1
    writer.append(b"after")
    writer.flush()
    assert values(path) == [b"before", *[b"x" * 500] * count, b"after"]
    assert count <= max(block.records for _, block in jlog.Journal(path).blocks())


def test_readers_see_all_of_it_together(writer, path):
    with jlog.Reader(path) as reader:
        for size in (1, 5, 30, 100):
            writer.extend_arrow(pyarrow.array([b"x" * 100] * size))
            assert len(reader.read(1000)) == size


def test_state_is_stored_with_it(writer, path):
    assert writer.extend_arrow(pyarrow.array([b"a", b"b"]), state={b"batch": b"7"}) == 0
    assert writer.extend_arrow(pyarrow.array([], pyarrow.binary()), state={b"batch": b"8", b"more": b""}) == 2
    assert (values(path), jlog.Journal(path).state()) == ([b"a", b"b"], {b"batch": b"8", b"more": b""})


def test_a_closed_writer_takes_none(path):
    with jlog.Writer(path) as writer:
        pass
    with pytest.raises(jlog.JournalClosed):
        writer.extend_arrow(pyarrow.array([b"a"]))


# --- Columns -----------------------------------------------------------------------------------------------------


@EACH_BINARY
def test_keys_go_with_their_values(writer, path, type_):
    keys = pyarrow.array(["k", None, ""]).cast(type_)
    writer.extend_arrow(batch_of(value=[b"a", b"b", None], key=keys))
    assert [(record.value, record.key) for record in records(path)] == [
        (b"a", b"k"),
        (b"b", None),
        (None, b""),
    ]


LARGE = pyarrow.large_list(pyarrow.struct([("value", pyarrow.large_binary()), ("key", pyarrow.large_string())]))


@pytest.mark.parametrize("type_", [HEADERS, LARGE], ids=["list", "large list"])
def test_headers_go_with_their_values_and_null_or_empty_is_none(writer, path, type_):
    given = [[("a", b"1"), ("Größe", None), ("a", b"")], None, [], [("b", b"x" * 6000)]]
    headers = headers_of(*given, type_=type_)
    writer.extend_arrow(batch_of(value=[b"0", b"1", b"2", None], headers=headers))
    writer.extend_arrow(batch_of(value=[b"4", b"5"], headers=headers.slice(2)))
    expected = [one or [] for one in given]
    assert [record.headers for record in records(path)] == expected + expected[2:]


@pytest.mark.parametrize(
    ("unit", "given", "expected"),
    [
        ("s", [0, -1, 9_223_372_036_854], [0, -1_000_000, 9_223_372_036_854_000_000]),
        ("ms", [5, -(2**63 // 1000)], [5000, -(2**63 // 1000 * 1000)]),
        ("us", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ("ns", [999, 1000, -1, -1000, -1001, -(2**63)], [0, 1, -1, -1, -2, -(2**63) // 1000]),
    ],
)
def test_timestamps_of_any_unit_become_microseconds_rounded_down(writer, path, unit, given, expected):
    timestamps = pyarrow.array(given, pyarrow.timestamp(unit, "Asia/Tokyo"))
    writer.extend_arrow(batch_of(value=[b""] * len(given), timestamp=timestamps))
    assert [record.timestamp_us for record in records(path)] == expected


def test_a_null_timestamp_is_the_clocks(writer, path):
    before = writer.append(b"")
    timestamps = pyarrow.array([7, None, 8], pyarrow.timestamp("us", "UTC"))
    writer.extend_arrow(batch_of(value=[b"a", b"b", b"c"], timestamp=timestamps))
    writer.append(b"")
    found = [record.timestamp_us for record in records(path)]
    assert (found[1], found[3]) == (7, 8)
    assert found[before] <= found[2] <= found[4]


@pytest.mark.parametrize(("unit", "given"), [("s", 9_223_372_036_855), ("s", -(2**63)), ("ms", 2**63 // 1000 + 1)])
def test_a_timestamp_that_does_not_fit_is_refused_with_its_row(writer, unit, given):
    timestamps = pyarrow.array([0, given], pyarrow.timestamp(unit, "UTC"))
    with pytest.raises(ValueError, match=r"row 1: .*64 bits"):
        writer.extend_arrow(batch_of(value=[b"a", b"b"], timestamp=timestamps))


def test_a_timestamp_without_a_time_zone_is_refused(writer):
    """The error says what to do."""
    timestamps = pyarrow.array([0], pyarrow.timestamp("ms"))
    with pytest.raises(ValueError, match=r"cast it to pyarrow.timestamp\('ms', 'UTC'\)"):
        writer.extend_arrow(batch_of(value=[b"a"], timestamp=timestamps))


def test_sequences_are_given_anew(writer, path):
    writer.extend_arrow(batch_of(sequence=[700, 5], value=[b"a", b"b"]))
    assert [(record.sequence, record.value) for record in records(path)] == [(0, b"a"), (1, b"b")]


def test_differently_chunked_columns_are_one_extend(writer, path):
    table = pyarrow.table(
        {
            "key": pyarrow.chunked_array([["k0"], ["k1", None, "k3"]]),
            "value": pyarrow.chunked_array([[b"0", b"1"], [None], [b"3"]]),
        }
    )
    with jlog.Reader(path) as reader:
        writer.extend_arrow(table)
        assert [(record.key, record.value) for record in reader.read()] == [
            (b"k0", b"0"),
            (b"k1", b"1"),
            (None, None),
            (b"k3", b"3"),
        ]


def test_columns_from_to_arrow_make_the_same_records_again(path, tmp_path):
    with jlog.Writer(path) as writer:
        fill(writer, 50)
        writer.append(None, key=b"k", headers=[("h", None), ("h", b"v")], timestamp_us=-3)
        fill(writer, 50)
    with jlog.Reader(path) as reader, jlog.Writer(tmp_path / "copy", **SMALL) as copy:
        for batch in reader.record_batches(max_records=30):
            copy.extend_arrow(batch)
    assert records(tmp_path / "copy") == records(path)


# --- What is refused, with nothing written -----------------------------------------------------------------------

ONE = [b"a"]
REFUSED = {
    "a list": (ONE, TypeError, "builtins.list; pyarrow.table"),
    "bytes": (b"a", TypeError, "bytes"),
    "numbers": (pyarrow.array([1]), TypeError, "value must be binary.*not int64"),
    "a dictionary of numbers": (pyarrow.array([1]).dictionary_encode(), TypeError, "not dictionary of int64"),
    "fixed size": (pyarrow.array([b"a"], pyarrow.binary(1)), TypeError, "cast"),
    "no value": (batch_of(key=ONE), ValueError, "no column value"),
    "unknown columns": (
        batch_of(value=ONE, offset=[1], topic=["t"]),
        ValueError,
        "does not have the column offset, topic; leave it out",
    ),
    "twice": (pyarrow.RecordBatch.from_arrays([ONE, ONE], ["value", "value"]), ValueError, "twice"),
    "keys of numbers": (batch_of(value=ONE, key=[1]), TypeError, "key must be binary.*not int64"),
    "timestamps of numbers": (batch_of(value=ONE, timestamp=[1]), TypeError, "timestamp.*not int64"),
    "headers of strings": (
        batch_of(value=ONE, headers=[["a"]]),
        TypeError,
        r"headers must be list<struct<.*not list",
    ),
    "headers with binary keys": (
        batch_of(value=ONE, headers=[[{"key": b"k", "value": b"v"}]]),
        TypeError,
        "headers must be",
    ),
    "headers with more": (
        batch_of(value=ONE, headers=[[{"key": "k", "value": b"v", "more": 1}]]),
        TypeError,
        "headers must be",
    ),
    "headers with numbers": (
        batch_of(value=ONE, headers=[[{"key": "k", "value": 1}]]),
        TypeError,
        "value must be binary",
    ),
    "a null header": (
        batch_of(value=[*ONE, b"b"], headers=pyarrow.array([[], [None]], HEADERS)),
        ValueError,
        "row 1: a header, or its key, is null",
    ),
    "a null name": (batch_of(value=ONE, headers=headers_of([(None, b"v")])), ValueError, "row 0: .*null"),
    "too many headers": (batch_of(value=ONE, headers=headers_of([("h", b"")] * 65536)), ValueError, "65535"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_record_is_refused_and_nothing_is_written(writer, path, name):
    given, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        writer.extend_arrow(given)
    assert (writer.next_sequence, values(path)) == (0, [])


def test_one_bad_row_leaves_nothing_and_is_named(writer, path):
    """It is in the last chunk; the error gives the number of its row."""
    good = batch_of(value=[b"x"] * 1000, headers=headers_of(*[[("h", b"v")]] * 1000))
    bad = batch_of(value=[b"y", b"z"], headers=headers_of([("h", b"v")], [(None, b"v")]))
    with pytest.raises(ValueError, match="row 1001"):
        writer.extend_arrow(pyarrow.Table.from_batches([good, bad]), state={b"k": b"v"})
    assert (writer.next_sequence, values(path), jlog.Journal(path).state()) == (0, [], {})


# bytes(n) is zeroed memory that the kernel gives only when it is touched: these refusals must not touch it.


def array_of_sizes(*sizes):
    offsets = pyarrow.array([sum(sizes[:number]) for number in range(len(sizes) + 1)], pyarrow.int64())
    buffers = [None, offsets.buffers()[1], pyarrow.py_buffer(bytes(sum(sizes)))]
    return pyarrow.Array.from_buffers(pyarrow.large_binary(), len(sizes), buffers)


@pytest.mark.parametrize(
    "given",
    [
        lambda: array_of_sizes(1, (1 << 30) + 1),
        lambda: batch_of(value=[b"a", b"b"], key=array_of_sizes(1, (1 << 30) + 1)),
        lambda: array_of_sizes(800 << 20, 800 << 20),
    ],
    ids=["value", "key", "together"],
)
def test_beyond_the_formats_limits_it_is_too_large(writer, path, given):
    with pytest.raises(jlog.RecordTooLarge, match=r"\d{10}"):
        writer.extend_arrow(given())
    assert (writer.next_sequence, values(path)) == (0, [])
