"""Records as bytes: what is encoded is what the format says, and is decoded to the same."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jlog
import oracle

LONG, EXPLICIT, STATE, NULL, KEY, ABSOLUTE = (1 << bit for bit in range(31, 25, -1))

binary = st.binary(max_size=300)
names = st.text(st.characters(codec="utf-8"), max_size=20)
optional = st.none() | binary
records = st.tuples(
    optional,
    optional,
    st.lists(st.tuples(names, optional), max_size=4),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


@pytest.fixture
def raw(tmp_path):
    """The body of a block that holds one record, by the arguments of append; the base time before it."""
    count = iter(range(1000))

    def write(*arguments, **options):
        path = tmp_path / f"j{next(count)}"
        with jlog.Writer(path, precommit=4 << 10) as writer:
            writer.append(*arguments, **options)
        block = oracle.read_journal(path).blocks[-1]
        return oracle.raw_body(block), block.base_time_us

    return write


def test_a_plain_value_takes_8_bytes_beside_it(raw):
    assert raw(b"hello")[0] == struct.pack("<II", 5, 0) + b"hello"
    assert raw(b"")[0] == struct.pack("<II", 0, 0)


def test_the_long_form_is_tag_time_lengths_key_headers_value(raw):
    assert raw(None)[0] == struct.pack("<IIIII", LONG | NULL, 0, 0, 0, 0)
    assert raw(b"v", key=b"key")[0] == struct.pack("<IIIII", LONG | KEY, 0, 1, 3, 0) + b"keyv"
    assert raw(b"v", key=b"")[0] == struct.pack("<IIIII", LONG | KEY, 0, 1, 0, 0) + b"v"
    headers = struct.pack("<II", 1, 2) + b"hxx" + struct.pack("<II", 2, 2**32 - 1) + "é".encode()
    found, _ = raw(b"v", headers=[("h", b"xx"), ("é", None)])
    assert found == struct.pack("<IIIII", LONG, 0, 1, 0, len(headers)) + headers + b"v"


def test_an_explicit_time_stands_whole(raw):
    found, _ = raw(b"v", timestamp_us=-7)
    assert found == struct.pack("<IIIIIq", LONG | EXPLICIT | ABSOLUTE, 0, 1, 0, 0, -7) + b"v"


def told(record):
    return record.value, record.key, record.headers


def given_as(records):
    return [(value, key, headers) for value, key, headers, _ in records]


@settings(max_examples=60, deadline=None)
@given(
    written=st.lists(records, min_size=1, max_size=8),
    precommit=st.sampled_from([0, 4 << 10]),
    together=st.booleans(),
)
def test_any_records_come_back_from_library_and_oracle(tmp_path_factory, written, precommit, together):
    path = tmp_path_factory.mktemp("records") / "j"
    with jlog.Writer(path, precommit=precommit, segment_bytes=8 << 10) as writer:
        if together:
            columns = list(zip(*written, strict=True))
            writer.extend(columns[0], keys=columns[1], headers=columns[2], timestamps_us=columns[3])
        else:
            for value, key, headers, timestamp_us in written:
                writer.append(value, key=key, headers=headers, timestamp_us=timestamp_us)
        with jlog.Reader(path) as reader:
            read = list(reader)
        with jlog.Reader(path) as reader:
            batch = reader.read()
    judged = oracle.check_journal(path).records
    for found in (read, list(batch), [batch[i] for i in range(len(batch))], judged):
        assert [told(record) for record in found] == given_as(written)
        assert all(
            timestamp_us in (None, record.timestamp_us) for record, (_, _, _, timestamp_us) in zip(found, written, strict=True)
        )
    assert batch.values() == [value for value, _, _, _ in written]
    assert [record.explicit for record in judged] == [timestamp_us is not None for _, _, _, timestamp_us in written]
