"""extend: all of its records or none, in one call."""

import copy

import pytest

import jlog
from behaviour.journals import SMALL, records, value_of, values

LARGER_THAN_THE_BUFFER = [b"x" * 500] * 20
LARGER_THAN_A_SEGMENT = [b"x" * 500] * 200


@pytest.fixture(name="writer", params=[0, 4 << 10], ids=["unbuffered", "buffered"])
def each_writer(request, path):
    with jlog.Writer(path, **{**SMALL, "precommit": request.param}) as writer:
        yield writer


def test_records_are_appended_with_all_that_they_have(writer, path):
    new = [jlog.NewRecord(b"a", b"k", (("h", b"v"),), 5), jlog.NewRecord(None)]
    assert writer.extend(new) == 0
    with jlog.Reader(path) as reader:
        read = reader.read()
    assert writer.extend(read) == 2
    found = [(record.value, record.key, record.headers) for record in records(path)]
    assert found == [(b"a", b"k", [("h", b"v")]), (None, None, [])] * 2
    assert records(path)[0].timestamp_us == records(path)[2].timestamp_us == 5
    for mixed in ([new[0], b"b"], [b"b", new[0]]):
        with pytest.raises(TypeError):
            writer.extend(mixed)


def test_it_returns_the_sequence_of_the_first(writer):
    assert writer.extend([b"a", b"b", b"c"]) == 0
    assert writer.append(b"d") == 3
    assert writer.extend((b"e",)) == 4
    assert writer.next_sequence == 5


@pytest.mark.parametrize("empty", [[], (), iter(())], ids=["list", "tuple", "iterator"])
def test_nothing_without_state_writes_nothing(writer, path, empty):
    """The call returns the next sequence."""
    writer.append(b"a")
    writer.flush()
    before = [block for _, block in jlog.Journal(path).blocks()]
    assert writer.extend(empty) == 1
    assert writer.extend(empty, keys=[], headers=[], timestamps_us=[], state={}) == 1
    writer.flush()
    assert [block for _, block in jlog.Journal(path).blocks()] == before


def test_a_generator_is_read_once_to_its_end(writer, path):
    assert writer.extend(value_of(number) for number in range(100)) == 0
    assert values(path) == [value_of(number) for number in range(100)]


def test_a_generator_that_fails_leaves_nothing(writer, path):
    def failing():
        yield b"a"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        writer.extend(failing())
    assert (writer.next_sequence, values(path)) == (0, [])


def test_one_bad_value_among_good_ones_leaves_nothing(writer, path):
    for bad in ("text", 5, memoryview(b"abcd")[::2]):
        with pytest.raises((TypeError, BufferError)):
            writer.extend([b"good"] * 100 + [bad])
    assert (writer.next_sequence, values(path)) == (0, [])


def test_a_single_bytes_object_instead_of_a_list_is_refused(writer):
    with pytest.raises(TypeError):
        writer.extend(b"abc")
    with pytest.raises(TypeError):
        writer.extend("abc")
    assert writer.next_sequence == 0


@pytest.mark.parametrize("many", [LARGER_THAN_THE_BUFFER, LARGER_THAN_A_SEGMENT], ids=["buffer", "segment"])
def test_larger_than_the_buffer_or_a_segment_it_is_one_block(writer, path, many):
    writer.append(b"before")
    assert writer.extend(many) == 1
    writer.append(b"after")
    writer.flush()
    assert values(path) == [b"before", *many, b"after"]
    assert len(many) in [block.records for _, block in jlog.Journal(path).blocks()]


def test_records_of_one_extend_appear_to_a_reader_together(writer, path):
    with jlog.Reader(path) as reader:
        for size in (1, 5, 30, 100):
            writer.extend([b"x" * 100] * size)
            assert len(reader.read(1000)) == size


def test_columns_go_with_their_values(writer, path):
    writer.extend(
        [b"a", None, b"c"],
        keys=[b"k", None, b""],
        headers=[[("h", b"1")], None, []],
        timestamps_us=[5, None, -7],
    )
    found = records(path)
    assert [record.value for record in found] == [b"a", None, b"c"]
    assert [record.key for record in found] == [b"k", None, b""]
    assert [record.headers for record in found] == [[("h", b"1")], [], []]
    assert (found[0].timestamp_us, found[2].timestamp_us) == (5, -7)
    assert found[1].timestamp_us > 10**15


@pytest.mark.parametrize("name", ["keys", "headers", "timestamps_us"])
def test_each_column_may_be_given_alone_and_as_any_iterable(writer, path, name):
    column = {"keys": [b"k0", b"k1"], "headers": [[("h", b"0")], [("h", b"1")]], "timestamps_us": [10, 11]}[name]
    writer.extend([b"a", b"b"], **{name: iter(column)})
    field = {"keys": "key", "headers": "headers", "timestamps_us": "timestamp_us"}[name]
    assert [getattr(record, field) for record in records(path)] == column


@pytest.mark.parametrize("name", ["keys", "headers", "timestamps_us"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_columns_of_another_length_are_refused_with_their_name(writer, path, name, length):
    """The error gives the length, too."""
    with pytest.raises(ValueError, match=rf"{name} has {length} .*2"):
        writer.extend([b"a", b"b"], **{name: [None] * length})
    assert (writer.next_sequence, values(path)) == (0, [])


def test_a_column_without_values_is_refused(writer):
    with pytest.raises(ValueError, match="keys has 1"):
        writer.extend([], keys=[b"k"])


def test_many_records_in_one_call_keep_their_order(writer, path):
    many = [b"%d" % number for number in range(20_000)]
    assert writer.extend(many) == 0
    assert values(path) == many


def test_batches_of_equal_records_are_equal(writer, path):
    writer.extend([b"a", b"b"])
    with jlog.Reader(path) as reader, jlog.Reader(path) as other:
        batch = reader.read()
        assert copy.copy(batch) == batch == other.read()
        assert len({batch, copy.copy(batch)}) == 1
        assert batch != reader.read()
        assert batch != list(batch)
