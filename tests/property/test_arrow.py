"""Arbitrary records through Arrow, in and out, are those that extend and iteration have."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow
import pytest
from hypothesis import given, settings

import exhaustive
import jlog
from behaviour.arrow_columns import HEADERS, SCHEMA

FIELDS = {
    "value": [pyarrow.binary(), pyarrow.large_binary()],
    "key": [pyarrow.binary(), pyarrow.large_binary()],
    "headers": [HEADERS],
    "timestamp": [pyarrow.timestamp("us", "UTC")],
}
FIELDS["headers"].append(
    pyarrow.large_list(pyarrow.struct([("value", pyarrow.large_binary()), ("key", pyarrow.large_string())]))
)

optional = st.none() | st.binary(max_size=300)
names = st.text(st.characters(codec="utf-8"), max_size=8)
headers = st.none() | st.lists(st.tuples(names, optional), max_size=4)
records = st.tuples(optional, optional, headers, st.integers(-(2**63), 2**63 - 1))
some_records = st.lists(records, max_size=30)
WRITERS = {"precommit": 4 << 10, "segment_bytes": 4 << 10}


def column_of(field, type_, found):
    if field == "headers":
        pairs = [[{"key": name, "value": value} for name, value in one] if one is not None else None for one in found]
        return pyarrow.array(pairs, type_)
    return pyarrow.array(found, type_)


@st.composite
def batches(draw):
    """A record batch that is a slice of a larger one, each column of which is one too; and its records."""
    found = draw(some_records)
    columns = {name: [record[at] for record in found] for at, name in enumerate(FIELDS)}
    before = draw(st.integers(0, 9))
    arrays = {}
    for name in draw(st.permutations(sorted(FIELDS))):
        filler = columns[name][:1] * before
        array = column_of(name, draw(st.sampled_from(FIELDS[name])), [*filler, *columns[name]])
        arrays[name] = array.slice(len(filler))
    start = draw(st.integers(0, len(found)))
    size = draw(st.integers(0, len(found)))
    return pyarrow.RecordBatch.from_pydict(arrays).slice(start, size), found[start : start + size]


def read(path):
    with jlog.Reader(path) as reader:
        return [(record.value, record.key, record.headers, record.timestamp_us) for record in reader]


@settings(max_examples=exhaustive.count(50, 300), deadline=None)
@given(st.lists(batches(), min_size=1, max_size=4), st.sampled_from([0, 4 << 10, 128 << 10]))
def test_extend_arrow_stores_what_extend_does(tmp_path_factory, given, precommit):
    path = tmp_path_factory.mktemp("arrow") / "j"
    expected = []
    with jlog.Writer(path, **WRITERS | {"precommit": precommit}) as writer:
        for batch, found in given:
            assert writer.extend_arrow(batch) == len(expected)
            expected += [(value, key, headers or [], time) for value, key, headers, time in found]
        assert read(path) == expected
    assert read(path) == expected


@settings(max_examples=exhaustive.count(50, 300), deadline=None)
@given(st.lists(some_records, max_size=5), st.integers(1, 40), st.integers(1, 5000), st.data())
def test_arrow_holds_what_iteration_gives(tmp_path_factory, given, max_records, max_bytes, data):
    path = tmp_path_factory.mktemp("arrow") / "j"
    with jlog.Writer(path, **WRITERS) as writer:
        for found in given:
            values, keys, headers, times = zip(*found, strict=True) if found else [()] * 4
            writer.extend([b"plain"] * len(found))
            writer.extend(values, keys, headers, times, state={b"k": b"v"} if len(found) % 2 else None)
        start = data.draw(st.integers(0, writer.next_sequence))
    with jlog.Reader(path, start=start) as reader:
        expected = list(reader)
    with jlog.Reader(path, start=start) as reader:
        limits = {"max_records": max_records, "max_bytes": max_bytes}
        if data.draw(st.booleans()):
            found = list(reader.record_batches(**limits))
        else:
            found = []
            while batch := reader.read(**limits):
                found.append(batch.to_arrow())
    table = pyarrow.Table.from_batches(found, SCHEMA)
    table.validate(full=True)
    assert all(batch.num_rows <= max_records for batch in found)
    assert table.column("sequence").to_pylist() == [record.sequence for record in expected]
    assert table.column("value").to_pylist() == [record.value for record in expected]
    assert table.column("key").to_pylist() == [record.key for record in expected]
    assert table.column("timestamp").cast(pyarrow.int64()).to_pylist() == [record.timestamp_us for record in expected]
    assert table.column("headers").to_pylist() == [
        [{"key": name, "value": value} for name, value in record.headers] or None for record in expected
    ]


PIECES = [b"", *(character.encode() for character in "\u00e9\u20ac\U0001f600")]
BROKEN = [b"\xff", b"\xc3", b"\xa9", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
ascii_runs = st.integers(0, 100).map(lambda size: b"a" * size)
texts = st.tuples(ascii_runs, st.sampled_from(PIECES * 8 + BROKEN), ascii_runs).map(b"".join)


@settings(max_examples=exhaustive.count(50, 300), deadline=None)
@given(st.lists(texts, max_size=30))
def test_a_column_of_text_is_what_python_decodes(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("arrow") / "j"
    with jlog.Writer(path) as writer:
        writer.extend(values)
    try:
        expected = [value.decode() for value in values]
    except UnicodeDecodeError as error:
        with pytest.raises(ValueError, match=f"the value of record {values.index(error.object)} is not UTF-8"):
            jlog.scan(path, text=True).to_arrow()
    else:
        assert jlog.scan(path, text=True).to_arrow().column("value").to_pylist() == expected
