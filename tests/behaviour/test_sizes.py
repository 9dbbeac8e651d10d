"""Values of every size that meets a boundary: of the buffer, of the segment, of the format."""

import pytest

import jlog
from behaviour.journals import values

CAPACITY = 4 << 10
SEGMENT = 16 << 10
# A record takes 8 bytes beside its value, and the buffer's body begins with 8 bytes of base time.
WHOLE_BUFFER = CAPACITY - 16
LARGEST = 1 << 30
SIZES = {
    "0": 0,
    "1": 1,
    "buffer - 1": WHOLE_BUFFER - 1,
    "buffer": WHOLE_BUFFER,
    "buffer + 1": WHOLE_BUFFER + 1,
    "buffer's file - 1": CAPACITY - 1,
    "buffer's file": CAPACITY,
    "buffer's file + 1": CAPACITY + 1,
    "quarter of a segment": SEGMENT // 4,
    "segment": SEGMENT,
    "3 segments": 3 * SEGMENT,
}


def pattern(size, seed):
    return bytes((seed + i * 7) % 251 for i in range(256)) * (size // 256) + b"\xa5" * (size % 256)


@pytest.mark.parametrize("precommit", [0, CAPACITY])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_value_of_any_size_comes_back_between_others(path, size, precommit):
    written = [b"before", pattern(size, 1), b"between", pattern(size, 2), pattern(size, 3), b"after"]
    with jlog.Writer(path, precommit=precommit, segment_bytes=SEGMENT) as writer:
        assert [writer.append(value) for value in written] == list(range(6))
        assert values(path) == written
        assert values(path, start=4) == written[4:]
    assert values(path) == written
    assert jlog.Journal(path).verify().ok


@pytest.mark.parametrize("precommit", [0, CAPACITY])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_value_of_any_size_is_the_first_of_its_journal(path, size, precommit):
    with jlog.Writer(path, precommit=precommit, segment_bytes=SEGMENT) as writer:
        writer.append(pattern(size, 1))
        writer.append(b"after")
    assert values(path) == [pattern(size, 1), b"after"]


@pytest.mark.parametrize("step", [0, 1, 2, 7, 8, 9])
def test_values_that_fill_segments_to_the_last_byte_lose_nothing(path, step):
    written = []
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=4 << 10) as writer:
        for size in range(3700 + step * 10, 3900 + step * 10, 3):
            written += [pattern(size, size), b"x" * step]
            writer.extend(written[-2:])
    assert values(path) == written


def test_every_size_up_to_a_buffers_end_comes_back(writer, path):
    written = [pattern(size, size) for size in range(0, 4200, 13)]
    for value in written:
        writer.append(value)
    assert values(path) == written


def test_keys_and_headers_may_be_larger_than_buffer_and_segment(writer, path):
    writer.append(b"value", key=pattern(20_000, 1), headers=[("h", pattern(30_000, 2)), ("n" * 5000, None)])
    (record,) = jlog.Reader(path)
    assert record.key == pattern(20_000, 1)
    assert record.headers == [("h", pattern(30_000, 2)), ("n" * 5000, None)]


def test_a_value_of_300_megabytes_comes_back(path):
    value = bytes(1 << 20) + pattern(299 << 20, 5)
    with jlog.Writer(path) as writer:
        writer.append(b"before")
        writer.append(value)
        writer.append(b"after")
    with jlog.Reader(path) as reader:
        found = reader.values()
        assert next(found) == b"before"
        assert next(found) == value
        assert next(found) == b"after"


# bytes(n) is zeroed memory that the kernel gives only when it is touched: these refusals must not touch it.


@pytest.mark.parametrize(
    "call",
    [
        lambda writer: writer.append(bytes(LARGEST + 1)),
        lambda writer: writer.extend([b"small", bytes(LARGEST + 1)]),
        lambda writer: writer.append(b"", key=bytes(LARGEST + 1)),
        lambda writer: writer.append(bytes(LARGEST + 1), key=b"k"),
        lambda writer: writer.extend([bytes(800 << 20)] * 2),
    ],
    ids=["append", "extend", "key", "with key", "1.5 GiB together"],
)
@pytest.mark.parametrize("precommit", [0, CAPACITY])
def test_records_beyond_the_formats_limits_are_too_large(path, call, precommit):
    """Nothing of them is written."""
    with jlog.Writer(path, precommit=precommit) as writer:
        with pytest.raises(jlog.RecordTooLarge, match=r"\d{10}"):
            call(writer)
        with pytest.raises(ValueError, match=r"at most|more than"):
            call(writer)
        assert writer.next_sequence == 0
        assert writer.append(b"good") == 0
    assert values(path) == [b"good"]
