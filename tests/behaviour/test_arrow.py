"""Records as Arrow: what a batch and a reader give, and what pyarrow makes of it."""

import os
import struct
import sys
import threading

import pyarrow
import pyarrow.dataset
import pytest

import jlog
import oracle
from behaviour.arrow_columns import SCHEMA
from behaviour.journals import SMALL, damage_block, fill, records, value_of
from elsewhere import python

HEADERS = [("trace", b"1"), ("trace", b"2"), ("null", None), ("", b""), ("Größe ✓", b"\xff\x00")]
# value, key, headers, timestamp_us
KINDS = [
    (b"plain", None, None, None),
    (b"", None, None, None),
    (b"keyed", b"key", None, None),
    (b"empty key", b"", None, None),
    (None, b"tombstone", None, None),
    (None, None, None, None),
    (b"headers", None, HEADERS, None),
    (b"no headers", None, [], None),
    (b"earliest", None, None, -(2**63)),
    (b"latest", None, None, 2**63 - 1),
    (b"all", b"k" * 300, [("h", b"x" * 200)], -1),
]


@pytest.fixture
def kinds(writer):
    """Records of every kind, between plain ones, over several blocks and segments."""
    for kind in KINDS:
        fill(writer, 17)
        value, key, headers, timestamp_us = kind
        writer.append(value, key=key, headers=headers, timestamp_us=timestamp_us)
        writer.extend([value] * 3, [key] * 3, [headers] * 3, [timestamp_us] * 3)


def assert_holds(batch, expected):
    """Checks that the batch is valid Arrow and holds these records."""
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["timestamp"] = columns["timestamp"].cast(pyarrow.int64())  # datetime holds the years 1 to 9999 only
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "sequence": [record.sequence for record in expected],
        "timestamp": [record.timestamp_us for record in expected],
        "key": [record.key for record in expected],
        "value": [record.value for record in expected],
        "headers": [
            [{"key": name, "value": value} for name, value in record.headers] if record.headers else None for record in expected
        ],
    }


def test_it_has_the_columns_of_the_contract(path, writer):
    with jlog.Reader(path) as reader:
        assert pyarrow.schema(reader) == pyarrow.schema(reader.read()) == SCHEMA


def test_a_batch_in_arrow_holds_what_iteration_gives(path, kinds):
    with jlog.Reader(path) as reader:
        assert_holds(reader.read().to_arrow(), records(path))


def test_a_batch_that_holds_nothing_has_the_columns(path, writer):
    with jlog.Reader(path) as reader:
        assert_holds(reader.read().to_arrow(), [])


def test_a_record_without_key_value_or_headers_has_a_null(path, writer):
    writer.append(None, headers=[])
    with jlog.Reader(path) as reader:
        (row,) = reader.read().to_arrow().to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (None, None, None)


def test_an_empty_key_or_value_is_not_null(path, writer):
    writer.append(b"", key=b"")
    with jlog.Reader(path) as reader:
        (row,) = reader.read().to_arrow().to_pylist()
    assert (row["key"], row["value"]) == (b"", b"")


def test_stored_state_is_not_a_row(path, writer):
    writer.extend([b"a", b"b"], state={b"name": b"value"})
    writer.append(b"c")
    with jlog.Reader(path) as reader:
        assert_holds(reader.read().to_arrow(), records(path))


def test_a_batch_outlives_its_reader_and_its_journal(path):
    with jlog.Writer(path, **SMALL) as writer:
        written = fill(writer, 100)
        with jlog.Reader(path) as reader:
            batch = reader.read().to_arrow()
    jlog.Journal.delete(path)
    assert batch.column("value").to_pylist() == written


def name_in_place(path, name):
    """Overwrites the only header's name, of as many bytes, in a closed journal; its block stays whole."""
    file, block = next(found for found in jlog.Journal(path).blocks() if found[1].records)
    with open(file, "r+b") as opened:
        image = opened.read()
        uuid, at = image[16:32], block.offset
        body = image[at + 72 : at + 72 + block.stored_bytes].replace(b"n" * len(name), name)
        crc = oracle.crc32c(body)
        header = struct.pack("<8s12x52s", image[at : at + 8], image[at + 20 : at + 72])
        header = header[:12] + struct.pack("<II", crc, crc) + header[20:]
        place = uuid + struct.pack("<QQ", struct.unpack_from("<Q", image, 40)[0], at)
        opened.seek(at)
        opened.write(header[:8] + struct.pack("<I", oracle.crc32c(place + header)) + header[12:] + body)


@pytest.mark.damage
@pytest.mark.parametrize(
    ("name", "mended"),
    [
        (b"\xff" * 4, "�" * 4),
        (b"a\xc3b\xa9", "a�b�"),
        (b"\xed\xa0\x80.", "���."),  # a surrogate
        (b"\xf4\x90\x80\x80", "�" * 4),  # beyond Unicode
        (b"\xc0\xaf\xe2\x82", "�" * 4),  # overlong; cut off
        ("é€".encode()[:5].ljust(4, b"."), "é€"),
        ("🦊".encode(), "🦊"),
    ],
)
def test_a_headers_name_that_is_not_utf8_is_mended(path, name, mended):
    with jlog.Writer(path) as writer:
        writer.append(b"value", headers=[("n" * len(name), b"x")])
    name_in_place(path, name)
    with jlog.Reader(path) as reader:
        batch = reader.read().to_arrow()
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [[{"key": mended, "value": b"x"}]]


# --- Straight from the reader ------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_records", [1, 7, 100, 32_768])
def test_record_batches_hold_what_iteration_gives(path, kinds, max_records):
    expected = records(path)
    with jlog.Reader(path) as reader:
        batches = list(reader.record_batches(max_records=max_records))
        assert reader.position == len(expected)
    assert [batch.num_rows for batch in batches[:-1]] == [max_records] * (len(batches) - 1)
    for batch in batches:
        assert_holds(batch, expected[: batch.num_rows])
        del expected[: batch.num_rows]
    assert expected == []


@pytest.mark.parametrize("max_bytes", [1000, 20_000, 1 << 20])
@pytest.mark.parametrize("max_records", [10, 100_000])
def test_values_of_any_size_are_whole_in_batches_of_any_size(path, max_records, max_bytes):
    sizes = [*range(70), 500, 511, 512, 513, 544, 3000, 9000, *[100] * 300, *range(90, 0, -1)] * 3
    values = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with jlog.Writer(path, precommit=16 << 10) as writer:
        writer.extend(values)
        writer.append(None)
        writer.append(b"with a key", key=b"k")
        writer.extend(values)
    wanted = [*values, None, b"with a key", *values]
    with jlog.Reader(path) as reader:
        batches = list(reader.record_batches(max_records=max_records, max_bytes=max_bytes))
    for batch in batches:
        batch.validate(full=True)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == wanted
    assert [at for batch in batches for at in batch.column("sequence").to_pylist()] == list(range(len(wanted)))


def test_max_bytes_bounds_a_batch_but_for_its_first_record(path, writer):
    writer.extend([b"x" * 1000] * 10 + [b"y" * 5000] + [b"x" * 1000] * 10)
    with jlog.Reader(path) as reader:
        sizes = [batch.num_rows for batch in reader.record_batches(max_bytes=3500)]
    assert sizes == [3, 3, 3, 1, 1, 3, 3, 3, 1]


def test_the_position_stands_after_every_returned_batch(path, writer):
    fill(writer, 100)
    with jlog.Reader(path, "billing") as reader:
        batches = reader.record_batches(max_records=30)
        assert [(next(batches).num_rows, reader.position) for _ in range(4)] == [
            (30, 30),
            (30, 60),
            (30, 90),
            (10, 100),
        ]
        reader.commit()
        assert next(batches, None) is None
        fill(writer, 1)
        assert next(batches, None) is None
        assert [batch.num_rows for batch in reader.record_batches()] == [1]


def test_they_can_end_before_a_sequence(path, writer):
    fill(writer, 100)
    with jlog.Reader(path, start=10) as reader:
        assert [batch.num_rows for batch in reader.record_batches(max_records=25, end=70)] == [25, 25, 10]
        assert reader.position == 70
        assert list(reader.record_batches(end=70)) == []
        assert sum(batch.num_rows for batch in reader.record_batches(end=1000)) == 30


def test_only_the_columns_that_are_wanted_are_there(path, kinds):
    with jlog.Reader(path) as reader:
        (whole,) = reader.record_batches()
        for names in (["sequence"], ["headers", "key"], ["value", "timestamp"], ["timestamp", "sequence"]):
            reader.seek("begin")
            (batch,) = reader.record_batches(columns=names)
            batch.validate(full=True)
            assert batch.equals(whole.select(names))


@pytest.mark.parametrize("columns", [[], ["value", "offset"]])
def test_columns_that_do_not_exist_are_refused_with_the_choices(path, writer, columns):
    with (
        jlog.Reader(path) as reader,
        pytest.raises(ValueError, match="sequence, timestamp, key, value, headers"),
    ):
        reader.record_batches(columns=columns)


def test_limits_that_leave_nothing_are_refused(path, writer):
    with jlog.Reader(path) as reader:
        with pytest.raises(ValueError, match="at least 1"):
            reader.record_batches(max_records=0)
        with pytest.raises(ValueError, match="at least 1"):
            reader.record_batches(max_bytes=0)
        with pytest.raises(ValueError, match="at least 0"):
            reader.record_batches(end=-1)


@pytest.mark.damage
def test_records_before_damage_come_first_and_skipping_goes_on(path):
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=64 << 10) as writer:
        for _ in range(3):
            fill(writer, 10)
            writer.roll()
    damage_block(path, 1)
    with jlog.Reader(path) as reader:
        batches = reader.record_batches()
        assert next(batches).column("sequence").to_pylist() == list(range(10))
        for _ in range(2):
            with pytest.raises(jlog.CorruptJournal):
                next(batches)
        assert reader.skip_damage().records_lost == 10
        assert next(batches).column("sequence").to_pylist() == list(range(20, 30))


def test_a_closed_reader_gives_none(path, writer):
    fill(writer, 1)
    with jlog.Reader(path) as reader:
        batches = reader.record_batches()
    with pytest.raises(jlog.JournalClosed):
        next(batches)


TOO_LITTLE_MEMORY = """
import resource
import sys
import jlog

reader = jlog.Reader(sys.argv[1])
batches = reader.record_batches()
pages = int(open("/proc/self/statm").read().split()[0])
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), unlimited[1]))
found, failed = [], 0
while True:
    try:
        batch = next(batches, None)
    except MemoryError:
        failed += 1
        assert reader.position == sum(batch.num_rows for batch in found)
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        continue
    if batch is None:
        break
    found.append(batch)
print(failed, [sequence for batch in found for sequence in batch.column("sequence").to_pylist()] == list(range(300)))
"""


def test_without_memory_nothing_is_skipped(path):
    with jlog.Writer(path) as writer:
        for _ in range(300):
            writer.append(b"x" * 200_000)
    run = python(TOO_LITTLE_MEMORY, path, PYTHONPATH=os.pathsep.join(sys.path), ARROW_DEFAULT_MEMORY_POOL="system")
    assert (run.stdout, run.stderr) == ("1 True\n", "")


# --- Without pyarrow ---------------------------------------------------------------------------------------------


WITHOUT = """
import sys
import jlog
writer = jlog.Writer(sys.argv[1])
writer.append(b"value")
reader = jlog.Reader(sys.argv[1])
calls = {
    "to_arrow": lambda: jlog.Reader(sys.argv[1]).read().to_arrow(),
    "record_batches": lambda: reader.record_batches(),
}
try:
    calls[sys.argv[2]]()
except ImportError as error:
    print(error)
print(list(reader.values()))
"""


@pytest.mark.parametrize("call", ["to_arrow", "record_batches"])
def test_without_pyarrow_the_error_says_what_to_install(tmp_path, path, call):
    """All else works."""
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(name='pyarrow')")
    run = python(WITHOUT, path, call, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert "pip install 'pyjlog[arrow]'" in run.stdout
    assert "[b'value']" in run.stdout


def test_a_batch_over_many_blocks_keeps_their_order(path, writer):
    written = [value_of(number) for number in range(3000)]
    for at in range(0, 3000, 7):
        writer.extend(written[at : at + 7])
    with jlog.Reader(path) as reader:
        assert reader.read().to_arrow().column("value").to_pylist() == written


# --- Memory that is used again -----------------------------------------------------------------------------------

SIZES = [0, 1, 40, 100, 300, 1000, 30, 3000, 100, 12, 100]  # of the values of a batch, so that memory fits, or is too small


def values_of_size(batch):
    """Returns 300 values, which differ from those of all other batches."""
    size = SIZES[batch % len(SIZES)]
    return [(b"%d %d " % (batch, number) * (size // 4 + 1))[:size] for number in range(300)]


@pytest.fixture
def sized(path):
    """88 batches of 300 values each, whose size differs from batch to batch."""
    with jlog.Writer(path) as writer:
        for batch in range(88):
            writer.extend(values_of_size(batch))
    return path


@pytest.mark.parametrize("every", [1, 2, 3, 100])
@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.binary_view(), pyarrow.large_binary()])
def test_a_batch_keeps_its_bytes_whatever_others_have_been_released(sized, every, kind):
    held = {}
    with jlog.Reader(sized) as reader:
        for number in range(88):
            batch = pyarrow.record_batch(reader.read(300, timeout=0), schema=pyarrow.schema({"value": kind}))
            assert batch.column("value").to_pylist() == values_of_size(number)
            if number % every == 0:
                held[number] = batch
    for number, batch in held.items():
        batch.validate(full=True)
        assert batch.column("value").to_pylist() == values_of_size(number)


def test_threads_that_release_batches_at_once_share_no_memory(sized):
    failed = []

    def read():
        with jlog.Reader(sized) as reader:
            before = None
            for number, batch in enumerate(reader.record_batches(max_records=300)):
                expected = values_of_size(number)
                if batch.column("value").to_pylist() != expected:
                    failed.append(number)
                if before is not None and before.column("value").to_pylist() != values_of_size(number - 1):
                    failed.append(number - 1)
                before = batch

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
