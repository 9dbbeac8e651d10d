"""Record batches as brokers send them: every field is kept, and hostile bytes are an answer and no crash."""

from __future__ import annotations

import random

import lz4.frame
import pytest

pytest.importorskip("confluent_kafka")

import jlog
from jlog._core.format.checksum import crc32c
from jlog._core.kafka.fetched import FetchedBatches, FetchedMessage, FetchedMessages
from jlog._core.records.encode import EncodedRecords
from jlog.kafka.protocol.unpack import unpacked
from record_batches import APPEND_TIME, LZ4, TRANSACTIONAL, Row, batch, marker, varint

TIME = 1_700_000_000_000
STRANGE = [
    Row(None, b"tombstone"),
    Row(b"", b""),
    Row(None),
    Row(b"null in a header", headers=[(b"a", None), (b"a", b""), (b"a", b"1")]),
    Row(b"names", headers=[(b"", b"empty"), ("ünï \U0001f40d".encode(), bytes(range(256))), (b"n\0ul", b"1")]),
    Row(b"earlier", time_delta=-5000),
    Row(bytes(100_000), bytes(100_000), [(b"large", bytes(100_000))]),
    Row(b"many", headers=[(b"%d" % number, b"") for number in range(300)]),
]


def batches_of(data, offset=0, aborted=()):
    latest_first = sorted(aborted, key=lambda one: -one[1])
    return FetchedBatches("topic", 3, data, offset, latest_first, unpacked)


def taken(data, offset=0, aborted=(), at_once=1000):
    """Returns all messages, and the reason why there are no more."""
    batches = batches_of(data, offset, aborted)
    found = []
    while not batches.is_taken:
        messages = FetchedMessages()
        why_not = batches.take(messages, at_once, 1 << 30)
        found += messages
        if why_not is not None:
            return found, why_not
    return found, None


def values(data, *arguments, **more):
    found, why_not = taken(data, *arguments, **more)
    assert why_not is None
    return [message.value() for message in found]


@pytest.fixture
def written(tmp_path):
    """Writes messages into a journal, and returns its records."""

    def write(messages, with_topic=False):
        with jlog.Writer(tmp_path / "journal") as writer:
            body = writer.body()
            count, value_bytes, reason = messages.add_to(body, with_topic, 0)
            writer.extend_body(body)
        with jlog.Reader(tmp_path / "journal") as reader:
            return list(reader), count, value_bytes, reason

    return write


def messages_of(data, offset=0):
    messages = FetchedMessages()
    assert batches_of(data, offset).take(messages, 1000, 1 << 30) is None
    return messages


# --- Every field is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [0, LZ4], ids=["uncompressed", "lz4"])
@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_every_field_of_a_message_is_kept(attributes, at_once):
    found, why_not = taken(batch(STRANGE, 7, attributes=attributes, leader_epoch=4), 7, at_once=at_once)
    assert why_not is None
    for number, (message, row) in enumerate(zip(found, STRANGE, strict=True)):
        assert (message.value(), message.key()) == (row.value, row.key)
        assert message.headers() == ([(name.decode(), value) for name, value in row.headers] or None)
        assert (message.topic(), message.partition(), message.offset()) == ("topic", 3, 7 + number)
        assert message.timestamp() == (1, TIME + row.time_delta)
        assert (message.leader_epoch(), message.error(), len(message)) == (4, None, len(row.value or b""))


@pytest.mark.parametrize("with_topic", [False, True])
def test_records_of_a_journal_are_made_of_them(written, with_topic):
    records, count, value_bytes, reason = written(messages_of(batch(STRANGE, 7), 7), with_topic)
    assert (count, value_bytes, reason) == (len(STRANGE), sum(len(row.value or b"") for row in STRANGE), None)
    for number, (record, row) in enumerate(zip(records, STRANGE, strict=True)):
        place = [("jlog.kafka.topic", b"topic")] * with_topic
        place += [("jlog.kafka.partition", b"3"), ("jlog.kafka.offset", b"%d" % (7 + number))]
        assert (record.value, record.key) == (row.value, row.key)
        assert record.headers == [(name.decode(), value) for name, value in row.headers] + place
        assert record.timestamp_us == 1000 * (TIME + row.time_delta)


def test_the_time_of_the_broker_is_that_of_every_message():
    found, _ = taken(batch([Row(b"a", time_delta=1), Row(b"b", time_delta=2)], attributes=APPEND_TIME, max_time=5))
    assert [message.timestamp() for message in found] == [(2, 5), (2, 5)]


def test_a_record_that_cannot_be_made_is_told_and_the_next_ones_go_on(tmp_path):
    messages = messages_of(batch([b"0", Row(b"1", headers=[(b"n\xff", b"")]), b"2", Row(b"3", time_delta=1 << 62)]))
    with jlog.Writer(tmp_path / "journal") as writer:
        body = writer.body()
        assert messages.add_to(body, False, 0) == (1, 1, "the name of one of its headers is no UTF-8")
        at, size, reason = messages.add_to(body, False, 2)
        assert (at, size, "time" in reason) == (3, 1, True)
        assert messages.add_to(body, False, 4) == (4, 0, None)
        writer.extend_body(body)
    with jlog.Reader(tmp_path / "journal") as reader:
        assert list(reader.values()) == [b"0", b"2"]
    with pytest.raises(UnicodeDecodeError):
        messages[1].headers()


def test_they_are_a_sequence():
    messages = messages_of(batch([b"%d" % number for number in range(10)]) + batch([b"x"], 20, leader_epoch=2))
    assert (len(messages), messages.value_bytes, messages[-1].value()) == (11, 11, b"x")
    assert [message.value() for message in messages[2:4]] == [b"2", b"3"]
    assert messages.ends() == {("topic", 3): (21, 2)}
    with pytest.raises(IndexError, match="there are 11 messages"):
        messages[11]
    messages.cut(5)
    assert (len(messages), messages.ends()) == (5, {("topic", 3): (5, 0)})
    with pytest.raises(TypeError):
        FetchedMessage()


def test_a_message_outlives_the_others():
    data = bytearray(batch([b"a", b"b"]))
    kept = messages_of(data)[1]
    assert (kept.value(), kept.offset()) == (b"b", 1)
    with pytest.raises(BufferError):
        data.clear()


# --- Which of them are handed out -----------------------------------------------------------------------------------


def test_those_before_the_offset_are_left_out():
    assert values(batch([b"0", b"1", b"2"]) + batch([b"3"], 3), 2) == [b"2", b"3"]
    assert values(batch([b"0"]) + batch([b"1"], 1), 1) == [b"1"]


def test_a_compacted_batch_has_gaps():
    rows = [Row(b"3", offset_delta=3), Row(b"7", offset_delta=7)]
    data = batch(rows, 10, last_delta=9) + batch([], 20, last_delta=4, count=0) + batch([b"25"], 25)
    found, why_not = taken(data, 10)
    assert why_not is None
    assert [message.offset() for message in found] == [13, 17, 25]
    assert batches_of(batch(rows, 10, last_delta=9)).end == 20


def test_a_partial_batch_at_the_end_is_left_out():
    whole, part = batch([b"0"]), batch([b"1", b"2"], 1, leader_epoch=9)
    for size in range(len(part)):
        batches = batches_of(whole + part[:size])
        assert (batches.end, batches.end_epoch, batches.is_damaged) == (1, 0, False)
        assert values(whole + part[:size]) == [b"0"]


def test_aborted_transactions_are_left_out():
    """The transactions of two producers overlap, and one of them aborts twice."""
    data = b"".join(
        (
            batch([b"aborted"], 0, attributes=TRANSACTIONAL, producer=1),
            batch([b"committed"], 1, attributes=TRANSACTIONAL, producer=2),
            batch([b"aborted"], 2, attributes=TRANSACTIONAL | LZ4, producer=1),
            marker(3, 1, commits=False),
            batch([b"committed too"], 4, attributes=TRANSACTIONAL, producer=1),
            marker(5, 2, commits=True),
            marker(6, 1, commits=True),
            batch([b"none"], 7),
            batch([b"aborted"], 8, attributes=TRANSACTIONAL, producer=1),
            marker(9, 1, commits=False),
        )
    )
    expected = [b"committed", b"committed too", b"none"]
    for at_once in (1, 100):
        assert values(data, 0, [(1, 8), (1, 0)], at_once=at_once) == expected
    assert values(data, 3, [(1, 0), (1, 8)]) == expected[1:]
    batches = batches_of(data, 0, [(1, 0), (1, 8)])
    assert batches.end == 10


# --- Hostile bytes --------------------------------------------------------------------------------------------------


def test_a_wrong_checksum_is_told_and_all_before_it_is_handed_out():
    good, bad = batch([b"0"]), bytearray(batch([b"1"], 1))
    bad[-2] ^= 1
    found, why_not = taken(good + bad)
    assert ([message.value() for message in found], why_not) == ([b"0"], "a batch with a wrong checksum")


@pytest.mark.parametrize("codec", [1, 2, 4, 5])
def test_another_compression_is_told(codec):
    assert taken(batch([b"0"], attributes=codec)) == ([], f"a batch with another compression ({codec})")


def test_another_format_is_told():
    data = bytearray(batch([b"0"]))
    data[16] = 1
    batches = batches_of(bytes(data))
    assert (batches.end, batches.is_damaged) == (0, True)
    assert taken(bytes(data)) == ([], "a batch that cannot be read")


@pytest.mark.parametrize(
    "packed",
    [b"", b"nothing", lz4.frame.compress(bytes(1000))[:-9]],
    ids=["empty", "none", "cut"],
)
def test_what_is_no_lz4_frame_is_told(packed):
    data = bytearray(batch([b"0"], attributes=0, body=packed))
    assert taken(with_attributes(data, LZ4))[1] == "a batch that cannot be decompressed"


def with_attributes(data, attributes):
    """Sets the attributes, and the checksum to what it then is."""
    data[21:23] = attributes.to_bytes(2, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_a_batch_that_unpacks_to_too_much_is_told():
    assert taken(batch([b"0"], attributes=LZ4, body=bytes(129 << 20)))[1] == "a batch that cannot be decompressed"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (varint(-1), 1),
        (varint(1 << 40) + bytes(10), 1),
        (b"\x80" * 20, 1),
        (varint(6) + b"\0" + varint(0) + varint(1) + varint(-1) * 2 + varint(0), 1),  # behind the last offset
        (varint(6) + b"\0" + varint(0) + varint(-1) + varint(-1) * 2 + varint(0), 1),
        (varint(6) + b"\0" + varint(0) * 2 + varint(9) + varint(-1) + varint(0), 1),  # a key that is longer than the record
        (varint(6) + b"\0" + varint(0) * 2 + varint(-2) + varint(-1) + varint(0), 1),
        (varint(10) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(1 << 30), 1),  # as many headers
        (varint(8) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(1) + varint(-1) * 2, 1),  # a header without a name
        (varint(7) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0) + b"x", 1),
        ((varint(6) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0)) * 2, 2),  # the same offset twice
        (varint(6) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0) + b"x", 1),
        (varint(6) + b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(0), 2),
    ],
)
def test_bytes_that_are_no_records_are_told(body, count):
    assert taken(batch([b"0"], body=body, count=count)) == ([], "a batch whose records cannot be read")


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_crash_it(seed):
    """Bytes are changed, cut and repeated, with the right checksum and with a wrong one."""
    chance = random.Random(seed)
    rows = [Row(bytes(chance.randrange(30)), b"k", [(b"h", b"v")] * chance.randrange(3)) for _ in range(20)]
    for _ in range(300):
        attributes = chance.choice([0, LZ4, APPEND_TIME, TRANSACTIONAL])
        data = bytearray(batch(rows, 5, attributes=attributes, producer=1))
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data[at] = chance.randrange(256)
        if chance.random() < 0.5:
            data = data[: chance.randrange(len(data))] + data[chance.randrange(len(data)) :]
        if chance.random() < 0.8 and len(data) > 61:
            data = bytearray(with_attributes(data, attributes))
        batches = batches_of(bytes(data), chance.randrange(30), [(1, chance.randrange(40))])
        messages = FetchedMessages()
        batches.take(messages, 7, 1 << 20)
        batches.take(messages, 1000, 1 << 20)
        with_headers = [(message.value(), message.key(), read_headers(message)) for message in messages]
        assert len(with_headers) == len(messages)
        at = -1
        while at < len(messages):
            at = messages.add_to(EncodedRecords.of_values(()), True, at + 1)[0]


def read_headers(message):
    try:
        return message.headers()
    except UnicodeDecodeError:
        return None
