"""append: one record, of any contiguous bytes, with key, headers and time."""

import array
import mmap

import pytest

import jlog
from behaviour.journals import SMALL, fill, records, value_of, values


def test_sequences_count_from_0_without_gaps(writer):
    assert [writer.append(b"value") for _ in range(300)] == list(range(300))


def test_records_come_back_in_the_order_of_their_appends(writer, path):
    """They lie in many segments."""
    written = fill(writer, 500)
    assert len(jlog.Journal(path).segments()) > 10
    assert values(path) == written
    assert [record.sequence for record in records(path)] == list(range(500))


def test_an_append_copies_a_buffer_that_changes_later(writer, path):
    value = bytearray(b"before")
    writer.append(value)
    value[:] = b"after"
    assert values(path) == [b"before"]


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        bytearray(b"bytes"),
        memoryview(b"bytes"),
        memoryview(b"-bytes-")[1:-1],
        array.array("B", b"bytes"),
        array.array("d", [1.5, 2.5]),
        memoryview(bytes(range(12))).cast("B", (3, 4)),
    ],
    ids=["bytes", "bytearray", "memoryview", "slice", "array of bytes", "array of doubles", "two dimensions"],
)
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_any_contiguous_bytes_like_object_is_a_value(path, value, precommit):
    with jlog.Writer(path, precommit=precommit) as writer:
        writer.append(value)
        writer.extend([value, b"plain"])
        writer.append(b"", key=value, headers=[("name", value)])
    expected = bytes(memoryview(value).cast("B"))
    assert values(path) == [expected, expected, b"plain", b""]
    assert records(path)[3].key == expected
    assert records(path)[3].headers == [("name", expected)]


def test_a_mapped_file_is_a_value(writer, path, tmp_path):
    (tmp_path / "mapped").write_bytes(b"mapped" * 1000)
    with (
        open(tmp_path / "mapped", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        writer.append(mapped)
    assert values(path) == [b"mapped" * 1000]


def test_an_instance_of_a_subclass_of_bytes_comes_back_as_bytes(writer, path):
    class Special(bytes):
        pass

    writer.append(Special(b"value"))
    assert type(values(path)[0]) is bytes


REFUSED = {
    "str": ("text", TypeError),
    "int": (5, TypeError),
    "list of ints": ([1, 2], TypeError),
    "object": (object(), TypeError),
    "every second byte": (memoryview(b"abcdef")[::2], BufferError),
}


@pytest.mark.parametrize(("value", "error"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_a_value_that_is_not_contiguous_bytes_is_refused(path, value, error, precommit):
    """Nothing is written."""
    with jlog.Writer(path, precommit=precommit) as writer:
        for call in (
            lambda: writer.append(value),
            lambda: writer.append(b"", key=value),
            lambda: writer.append(b"", headers=[("name", value)]),
            lambda: writer.extend([b"first", value]),
            lambda: writer.extend([b"first"], keys=[value]),
            lambda: writer.extend([b"first"], headers=[[("name", value)]]),
            lambda: writer.extend([b"first"], state={b"key": value}),
        ):
            with pytest.raises(error):
                call()
        assert writer.next_sequence == 0
        assert writer.append(b"good") == 0
    assert values(path) == [b"good"]
    assert jlog.Journal(path).state() == {}


def test_a_str_is_refused_with_the_way_to_make_bytes_of_it(writer):
    with pytest.raises(TypeError, match=r"encode\(\)"):
        writer.append("text")


def test_a_value_must_be_given(writer):
    with pytest.raises(TypeError):
        writer.append()


def test_a_null_value_is_not_an_empty_one(writer, path):
    writer.append(None)
    writer.append(b"")
    writer.append(None, key=b"tombstone")
    assert values(path) == [None, b"", None]
    assert [(record.value, record.key) for record in records(path)] == [
        (None, None),
        (b"", None),
        (None, b"tombstone"),
    ]


def test_an_empty_key_is_not_an_absent_one(writer, path):
    writer.append(b"a", key=b"")
    writer.append(b"b")
    assert [record.key for record in records(path)] == [b"", None]


def test_headers_keep_order_repetition_nulls_and_any_script(writer, path):
    headers = [
        ("trace", b"1"),
        ("trace", b"2"),
        ("null", None),
        ("empty", b""),
        ("Größe ✓", b"\xff\x00"),
        ("", b"x"),
    ]
    writer.append(b"value", headers=headers)
    writer.append(b"value", headers=[])
    writer.append(b"value", headers=iter(headers))
    assert [record.headers for record in records(path)] == [headers, [], headers]


def test_a_headers_name_is_str(writer):
    with pytest.raises(TypeError, match="name must be str"):
        writer.append(b"value", headers=[(b"name", b"value")])


def test_more_headers_than_the_format_holds_are_refused(writer, path):
    most = [("h", None)] * 65535
    assert writer.append(b"value", headers=most) == 0
    with pytest.raises(ValueError, match="65535"):
        writer.append(b"value", headers=[*most, ("h", None)])
    assert len(records(path)[0].headers) == 65535
    assert writer.next_sequence == 1


def test_a_record_with_everything_comes_back_whole(writer, path):
    writer.append(b"v" * 300, key=b"k" * 200, headers=[("h", b"x" * 100)], timestamp_us=-5)
    (record,) = records(path)
    assert (record.value, record.key, record.headers, record.timestamp_us) == (
        b"v" * 300,
        b"k" * 200,
        [("h", b"x" * 100)],
        -5,
    )


def test_binary_values_that_look_like_blocks_come_back_unharmed(writer, path):
    image = (path / f"{0:020d}.seg").read_bytes()[:168]
    written = [image, b"JBLK" * 40, bytes(256), bytes(range(256)) * 3, image[96:]] * 10
    writer.extend(written)
    writer.flush()
    assert values(path) == written
    assert jlog.Journal(path).verify().ok


def test_writers_of_one_process_share_one_order(path):
    with jlog.Writer(path, **SMALL) as one, jlog.Writer(path, precommit=0) as other:
        assert [one.append(b"0"), other.append(b"1"), one.append(b"2"), other.append(b"3")] == [0, 1, 2, 3]
        assert one.next_sequence == other.next_sequence == 4
        assert values(path) == [b"0", b"1", b"2", b"3"]


def test_a_writer_without_buffer_appends_to_the_segment_file(path):
    with jlog.Writer(path, precommit=0) as writer:
        for number in range(5):
            writer.append(value_of(number))
            assert value_of(number) in (path / f"{0:020d}.seg").read_bytes()


def test_a_flush_hands_buffered_appends_to_the_segment_file(writer, path):
    """The buffer alone holds them until then."""
    writer.append(b"in the buffer")
    assert b"in the buffer" not in (path / f"{0:020d}.seg").read_bytes()
    assert values(path) == [b"in the buffer"]
    writer.flush()
    assert b"in the buffer" in (path / f"{0:020d}.seg").read_bytes()
    assert values(path) == [b"in the buffer"]
