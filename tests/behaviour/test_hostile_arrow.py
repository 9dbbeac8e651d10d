"""Arrow arrays that lie: they raise, and nothing outside their buffers is read. (What is read there would show as a value,
or end the process.)"""

import struct
import threading

import pyarrow
import pytest

import jlog
from behaviour.arrow_columns import HEADERS
from behaviour.journals import values

NARROW = [pyarrow.binary(), pyarrow.string()]
WIDE = [pyarrow.large_binary(), pyarrow.large_string()]
DATA = b"abcdef"
# Of four entries in six bytes. pyarrow itself looks at the first and the last.
LIES = {
    "backwards": [0, 4, 2, 5, 6],
    "beyond the end": [0, 2, 7, 7, 6],
    "far beyond the end": [0, 2, 2**31 - 1, 3, 6],
    "before the beginning": [0, 2, -1, 4, 6],
    "far before the beginning": [0, -(2**31), 0, 4, 6],
}


def integers(numbers, form):
    return pyarrow.py_buffer(bytearray(struct.pack(f"<{len(numbers)}{form}", *numbers)))


def strings(type_, offsets, data=DATA, validity=None):
    buffers = [validity, integers(offsets, "q" if type_ in WIDE else "i"), pyarrow.py_buffer(data)]
    return pyarrow.Array.from_buffers(type_, len(offsets) - 1, buffers)


def lists(offsets, headers, type_=HEADERS):
    buffers = [None, integers(offsets, "q" if type_.id == pyarrow.large_list(HEADERS).id else "i")]
    return pyarrow.Array.from_buffers(type_, len(offsets) - 1, buffers, children=[headers])


def structs(names, contents):
    type_ = pyarrow.struct([("key", names.type), ("value", contents.type)])
    return pyarrow.Array.from_buffers(type_, len(names), [None], children=[names, contents])


def headers_of(names, contents):
    """One record for each, with one header."""
    entries = structs(names, contents)
    return lists(list(range(len(names) + 1)), entries, pyarrow.list_(entries.type))


def assert_refused(writer, given):
    with pytest.raises(ValueError, match=r"row \d+: an offset points outside"):
        writer.extend_arrow(given)
    assert writer.next_sequence == 0


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("type_", [*NARROW, *WIDE], ids=str)
def test_offsets_that_point_outside_their_buffers_are_refused(writer, lie, type_):
    lying, four = strings(type_, lie), pyarrow.array([b"a"] * 4)
    names = pyarrow.array(["n"] * 4)
    assert_refused(writer, lying)
    assert_refused(writer, pyarrow.RecordBatch.from_pydict({"value": lying, "key": four}))
    assert_refused(writer, pyarrow.RecordBatch.from_pydict({"value": four, "key": lying}))
    assert_refused(writer, pyarrow.RecordBatch.from_pydict({"value": four, "headers": headers_of(names, lying)}))
    if type_ not in (pyarrow.binary(), pyarrow.large_binary()):
        assert_refused(writer, pyarrow.RecordBatch.from_pydict({"value": four, "headers": headers_of(lying, four)}))


@pytest.mark.parametrize("offset", [-(2**63), -1, 7, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("type_", WIDE, ids=str)
def test_offsets_of_64_bits_that_point_outside_are_refused(writer, offset, type_):
    assert_refused(writer, strings(type_, [0, 1, offset, 6]))
    assert_refused(writer, strings(type_, [0, offset, offset, 6]))


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@pytest.mark.parametrize("list_", [pyarrow.list_, pyarrow.large_list])
def test_offsets_of_lists_that_point_outside_are_refused(writer, lie, list_):
    six = pyarrow.array([{"key": "n", "value": b"v"}] * 6, HEADERS.value_type)
    headers = lists(lie, six, list_(HEADERS.value_type))
    assert_refused(writer, pyarrow.RecordBatch.from_pydict({"value": [b"a"] * 4, "headers": headers}))


def test_bytes_under_a_null_or_outside_a_slice_are_ignored(writer, path):
    offsets = [0, 2, -5, 99, 4, 6]
    writer.extend_arrow(strings(pyarrow.binary(), offsets, validity=pyarrow.py_buffer(bytes([0b10001]))))
    writer.extend_arrow(strings(pyarrow.binary(), offsets).slice(4))
    writer.extend_arrow(strings(pyarrow.binary(), offsets).slice(0, 1))
    assert values(path) == [b"ab", None, None, None, b"ef", b"ef", b"ab"]


def test_buffers_changed_since_their_check_are_refused(writer):
    offsets = bytearray(struct.pack("<5i", 0, 1, 2, 3, 6))
    array = pyarrow.Array.from_buffers(pyarrow.binary(), 4, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(DATA)])
    array.validate(full=True)
    struct.pack_into("<i", offsets, 4, 1 << 30)
    assert_refused(writer, array)


def test_buffers_changed_meanwhile_give_values_or_are_refused(path):
    """Larger than what is encoded without letting other threads run."""
    count, over = 200_000, threading.Event()
    good = struct.pack(f"<{count + 1}i", *range(0, count * 4 + 1, 4))
    offsets, data = bytearray(good), b"\xa5" * (count * 4)
    array = pyarrow.Array.from_buffers(pyarrow.binary(), count, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)])

    def disturb():
        while not over.is_set():
            for at in range(4, count * 4, 4096):
                struct.pack_into("<i", offsets, at, -1)
            offsets[:] = good

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with jlog.Writer(path) as writer:
            for _ in range(20):
                try:
                    writer.extend_arrow(array)
                except ValueError as error:
                    assert "outside" in str(error)  # noqa: PT017
            written = writer.next_sequence
    finally:
        over.set()
        disturber.join()
    assert written % count == 0
    assert all(set(value) <= {0xA5} for value in values(path))


@pytest.mark.parametrize(
    "name",
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"a\x80"],
)
def test_a_headers_name_that_is_not_utf8_is_refused(writer, name):
    names = strings(pyarrow.string(), [0, 1, 1 + len(name)], b"n" + name)
    headers = headers_of(names, pyarrow.array([b"v", b"v"]))
    with pytest.raises(ValueError, match=r"row 1: .*UTF-8"):
        writer.extend_arrow(pyarrow.RecordBatch.from_pydict({"value": [b"a", b"b"], "headers": headers}))
    assert writer.next_sequence == 0
