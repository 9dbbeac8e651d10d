"""Record batches for Kafka: what is in them, read back by a decoder that shares nothing with the encoder."""

from __future__ import annotations

import os
import struct
from array import array

import lz4.frame
import pytest

import jlog
from jlog._core.format.checksum import crc32c
from jlog._core.kafka.batches import NOT_OF_A_JOURNAL, Batches, Packing
from jlog._core.kafka.outgoing import FULL, NOT_PLAIN, SENT
from jlog.kafka.client.partitioner import partition_of_key

RULES = {
    "partition": None,
    "spread_bits": 10,
    "without_key": False,
    "needs_key": False,
    "limit_bytes": 1 << 30,
    "times_ms": (-(1 << 60), 1 << 60),
    "ours": "jlog.kafka.",
}
HEADER = (
    *("offset", "length", "leader", "magic", "crc", "attributes", "last", "first_ms", "newest_ms"),
    *("producer", "epoch", "sequence", "count"),
)


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def varint(self):
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return found >> 1 ^ -(found & 1)

    def sized(self):
        size = self.varint()
        return None if size < 0 else self.take(size)


def decoded(batch):
    """Returns the fields of the batch's header, and its records: key, value, headers and time."""
    data = b"".join(batch.pieces)
    assert batch.size == len(data)
    header = dict(zip(HEADER, struct.unpack(">qiibIhiqqqhii", data[:61]), strict=True))
    assert (header["offset"], header["length"], header["leader"], header["magic"]) == (0, len(data) - 12, -1, 2)
    assert header["crc"] == crc32c(data[21:])
    assert header["last"] == header["count"] - 1 == batch.records - 1
    records = Bytes(lz4.frame.decompress(data[61:]) if header["attributes"] & 7 == 3 else data[61:])
    found = []
    for index in range(header["count"]):
        record = Bytes(records.take(records.varint()))
        assert record.take(1) == b"\0"
        time_ms = header["first_ms"] + record.varint()
        assert record.varint() == index
        key, value = record.sized(), record.sized()
        headers = [(record.sized().decode(), record.sized()) for _ in range(record.varint())]
        assert record.at == len(record.data)
        found.append((key, value, headers, time_ms))
    assert records.at == len(records.data)
    assert header["newest_ms"] == max(time_ms for *_, time_ms in found)
    return header, found


def packed(path, batches, **rules):
    """Packs all records of a journal. Returns the batches of each partition."""
    found = {}

    def take(partition):
        number = sum(batch.records for batch in found.get(partition, ()))
        found.setdefault(partition, []).append(batches.take(partition, True, 7, 3, number))
        return True

    packing = Packing(batches, take, **RULES | rules)
    with jlog.Reader(path, start="begin") as reader:
        while batch := reader.read(1000):
            packing.begin(batch)
            assert packing.send() == SENT
    for partition in batches.filled():
        take(partition)
    return found, packing


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def test_a_batch_has_all_that_a_record_has(path):
    times = [1_700_000_000_123_456, -1, 1_700_000_000_000_999, 5]
    with jlog.Writer(path) as writer:
        writer.append(b"value", key=b"key", headers=[("h", b"1"), ("ä", None), ("", b"")], timestamp_us=times[0])
        writer.append(None, key=b"", timestamp_us=times[1])
        writer.append(b"", timestamp_us=times[2])
        writer.append(b"x" * 70_000, headers=[("jlog.kafka.offset", b"9"), ("own", b"y" * 300)], timestamp_us=times[3])
    found, packing = packed(path, Batches(1, 1 << 20), partitions=1)
    ((header, records),) = map(decoded, found[0])
    assert records == [
        (b"key", b"value", [("h", b"1"), ("ä", None), ("", b"")], 1_700_000_000_123),
        (b"", None, [], -1),
        (None, b"", [], 1_700_000_000_000),
        (None, b"x" * 70_000, [("own", b"y" * 300)], 1),
    ]
    assert (header["producer"], header["epoch"], header["sequence"], header["attributes"]) == (7, 3, 0, 0x13)
    assert packing.value_bytes == 70_005
    assert packing.beside_bytes == 3 + 1 + 1 + 2 + 3 + 300


def test_headers_are_added_behind_its_own(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"a"] * 200, headers=[[("h", None)]] * 200)
    found, _ = packed(path, Batches(1, 1 << 20), partitions=1, sequence_header="s", timestamp_header="t")
    ((_, records),) = map(decoded, found[0])
    with jlog.Reader(path, start="begin") as reader:
        times = [record.timestamp_us for record in reader.read(200)]
    assert [headers for _, _, headers, _ in records] == [
        [("h", None), ("s", b"%d" % sequence), ("t", b"%d" % time_us)] for sequence, time_us in enumerate(times)
    ]


def test_keys_go_where_the_java_client_puts_them(path):
    keys = [b"k" * (size % 11) + b"%d" % size for size in range(500)] + [b"", b"\xff\x80\xfe"]
    with jlog.Writer(path) as writer:
        writer.extend([b"v"] * len(keys), keys=keys)
    found, _ = packed(path, Batches(7, 1 << 20), partitions=7)
    for partition, batches in found.items():
        for batch in batches:
            assert {partition_of_key(key, 7, "murmur2") for key, *_ in decoded(batch)[1]} == {partition}
    assert sum(batch.records for batches in found.values() for batch in batches) == len(keys)


def test_a_full_batch_is_taken_and_records_stay_in_order(path):
    values = [b"%06d" % number + b"x" * (number % 300) for number in range(5_000)]
    with jlog.Writer(path) as writer:
        writer.extend(values)
    found, _ = packed(path, Batches(3, 10_000), partitions=3)
    got = {}
    for batches in found.values():
        assert len(batches) > 5
        begun = 0
        for batch in batches:
            header, records = decoded(batch)
            assert header["sequence"] == begun
            begun += batch.records
            sequences = array("Q", batch.sequences)
            got |= dict(zip(sequences, [value for _, value, *_ in records], strict=True))
            assert sum(len(value) + 4 for _, value, *_ in records) <= 10_000
    assert [got[number] for number in range(5_000)] == values


def test_a_record_larger_than_a_batch_has_one_of_its_own(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"a", b"b" * 50_000, b"c"])
    found, _ = packed(path, Batches(1, 10_000), partitions=1)
    assert [batch.records for batch in found[0]] == [1, 1, 1]


def test_what_does_not_shrink_is_sent_as_it_is():
    value = os.urandom(10_000)
    batches = Batches(1, 1 << 20)
    assert batches.put(value, None, 0, 1, ()) == SENT
    header, records = decoded(batches.take(0, True, 1, 0, 0))
    assert (header["attributes"], records) == (0x10, [(None, value, [], 1)])


def test_a_message_of_no_journal_has_no_sequence():
    batches = Batches(2, 100)
    assert batches.put(b"v", b"k", -1, 5, [("h", None), ("g", b"1")]) == SENT
    (partition,) = batches.filled()
    assert batches.put(b"v" * 100, None, partition, 5, ()) == FULL
    assert batches.full == partition
    taken = batches.take(partition, False, 1, 0, 0)
    assert decoded(taken)[1] == [(b"k", b"v", [("h", None), ("g", b"1")], 5)]
    assert array("Q", taken.sequences)[0] == NOT_OF_A_JOURNAL
    assert batches.filled() == []


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"limit_bytes": 3}, "too long"),
        ({"limit_bytes": 6}, "too long with its key"),
        ({"times_ms": (0, 10)}, "too late"),
        ({"needs_key": True}, "no key"),
        ({}, "a NUL in a header's name"),
    ],
)
def test_a_record_against_a_rule_is_left_to_the_caller(path, rules, reason):
    with jlog.Writer(path) as writer:
        writer.append(b"1", key=b"k", timestamp_us=1)
        writer.append(
            b"2222",
            key=None if "needs_key" in rules else b"key",
            headers=[("a\0b", b"")] if not rules else (),
            timestamp_us=10**15,
        )
        writer.append(b"3", key=b"k", timestamp_us=1)
    batches = Batches(1, 1000)
    packing = Packing(batches, lambda _: False, **RULES | {"partitions": 1} | rules)
    with jlog.Reader(path, start="begin") as reader:
        packing.begin(reader.read(10))
    assert (packing.send(), packing.index) == (NOT_PLAIN, 1), reason
    packing.skip()
    assert packing.send() == SENT
    assert [value for _, value, *_ in decoded(batches.take(0, False, 1, 0, 0))[1]] == [b"1", b"3"]


def test_a_batch_without_room_is_tried_again(path):
    with jlog.Writer(path) as writer:
        writer.extend([b"a" * 60, b"b" * 60])
    batches, rooms = Batches(1, 150), [False]
    packing = Packing(batches, lambda _: rooms[0], **RULES, partitions=1)
    with jlog.Reader(path, start="begin") as reader:
        packing.begin(reader.read(10))
    assert (packing.send(), packing.index) == (FULL, 1)
    assert [value for _, value, *_ in decoded(batches.take(0, False, 1, 0, 0))[1]] == [b"a" * 60]
    assert packing.send() == SENT
    assert [value for _, value, *_ in decoded(batches.take(0, False, 1, 0, 1))[1]] == [b"b" * 60]


def test_a_partition_that_is_not_there_is_refused():
    batches = Batches(2, 1000)
    with pytest.raises(IndexError):
        batches.put(b"v", None, 2, 1, ())
    with pytest.raises(IndexError):
        batches.take(0, False, 1, 0, 0)
    with pytest.raises(IndexError):
        Packing(batches, print, **RULES | {"partition": 2}, partitions=2)
    with pytest.raises(ValueError, match="NUL"):
        batches.put(b"v", None, 0, 1, [("a\0", b"")])
