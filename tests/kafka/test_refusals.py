"""Every sink takes the same records. One that no sink takes is refused with its place, in place of an error that ends all."""

from __future__ import annotations

import confluent_kafka
import pytest

import jlog
from jlog.kafka import Capture, Mirror, RecordRefused
from kafka.witness import fields_of_journal

TOO_LATE_MS = 1 << 62  # does not fit into 64 bits of microseconds


@pytest.fixture
def timed(witness, topic):
    """A topic with messages of three times: before 1970, far from now, and a usual one."""
    any_time = (1 << 63) - 1
    url = witness.make(
        topic, message_timestamp_after_max_ms=any_time, message_timestamp_before_max_ms=any_time, retention_ms=-1
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": witness.address})
    for value, time_ms in ((b"old", -5), (b"late", TOO_LATE_MS), (b"usual", 1_700_000_000_000)):
        producer.produce(topic, value, timestamp=time_ms)
    producer.flush()
    return url


def values(at):
    with jlog.open_reader(at) as reader:
        return [record.value for record in reader]


@pytest.mark.usefixtures("way")
def test_a_time_that_no_journal_has_room_for_is_refused_with_its_place(timed, tmp_path):
    with pytest.raises(RecordRefused, match=r"partition 0, offset 1 is refused: .*fit into 64 bits.*moved to /.*/copy; skip"):
        Capture(timed, tmp_path / "copy", until_end=True).run()
    assert fields_of_journal(tmp_path / "copy") == [(b"old", None, (), -5)]
    stats = Capture(timed, tmp_path / "copy", until_end=True, refused="dead-letter", dead_letter=tmp_path / "dead").run()
    assert (stats.records, stats.refused) == (2, 1)
    assert values(tmp_path / "copy") == [b"old", b"usual"]
    assert values(tmp_path / "dead") == [b"late"]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("to", ["a journal", "a topic"])
def test_a_transform_passes_by_a_time_that_fits_nowhere(timed, topic, witness, tmp_path, to):
    sink = tmp_path / "sink" if to == "a journal" else witness.make(f"{topic}.sink", retention_ms=-1)
    letters = tmp_path / "dead" if to == "a journal" else witness.url(f"{topic}.dead")
    said = []
    options = {"refused": "dead-letter", "dead_letter": letters, "on_event": said.append}
    stats = jlog.transform(timed, sink, lambda record: record, **options)
    assert (stats.records, stats.refused) == (3, 1)
    assert values(sink) == [b"old", b"usual"]
    assert values(letters) == [b"late"]
    assert f"{timed}: partition 0, offset 1 is refused: its time does not fit" in said[0]
    assert said[0].endswith(f"(on its way to {sink})")


class Odd:
    """A record as functions make them, whose parts are like bytes, and whose headers can be read once."""

    def __init__(self, record):
        self.value = memoryview(record.value)
        self.key = bytearray(b"key")
        self.headers = (pair for pair in [("name", memoryview(b"value")), ("empty", None)])
        self.timestamp_us = record.timestamp_us


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("to", ["a journal", "a topic"])
def test_what_is_like_bytes_arrives_as_bytes_and_headers_are_read_once(topic, witness, tmp_path, to):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"1", b"2"], timestamps_us=[1_700_000_000_000_000] * 2)
    sink = tmp_path / "sink" if to == "a journal" else witness.make(topic, retention_ms=-1)
    jlog.transform(tmp_path / "source", sink, lambda record: Odd(record) if record.value == b"1" else bytearray(b"two"))
    with jlog.open_reader(sink) as reader:
        first, second = reader
    assert (first.value, first.key, list(first.headers)) == (b"1", b"key", [("name", b"value"), ("empty", None)])
    assert (second.value, second.key, list(second.headers)) == (b"two", None, [])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("to", ["a journal", "a topic"])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"timestamp_us": "now"}, "whole microseconds since 1970 or None, not 'now'"),
        ({"timestamp_us": 1 << 70}, "does not fit into 64 bits"),
        ({"headers": 7}, "headers must be pairs"),
        ({"headers": [("\ud800", b"")]}, "headers must be pairs"),
    ],
)
def test_what_no_sink_takes_is_refused_by_all_alike(topic, witness, tmp_path, to, changed, said):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"1", b"2"])
    sink = tmp_path / "sink" if to == "a journal" else witness.make(topic)

    def function(record):
        return jlog.NewRecord.like(record, **changed) if record.value == b"1" else record

    with pytest.raises(RecordRefused, match=f"{tmp_path}/source: record 0 is refused: .*{said}.*moved to {sink}; skip"):
        jlog.transform(tmp_path / "source", sink, function)
    assert jlog.transform(tmp_path / "source", sink, function, refused="skip").refused == 1
    assert values(sink) == [b"2"]


@pytest.mark.parametrize("made", ["a text", ZeroDivisionError])
def test_a_key_that_cannot_be_had_is_a_refusal(topic, witness, tmp_path, made):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"1", b"2"])

    def key(record):
        if record.value == b"2":
            return b"key"
        return made if isinstance(made, str) else 1 // 0

    url = witness.make(topic)
    reason = "(key must be bytes or None, not str|ZeroDivisionError)"
    with pytest.raises(RecordRefused, match=f"^{tmp_path}/source: record 0 is refused: .*{reason}.*moved to {url}; skip"):
        Mirror(tmp_path / "source", url, key=key, until_end=True).run()
    assert Mirror(tmp_path / "source", url, key=key, until_end=True, refused="skip").run().refused == 1
    assert witness.values(topic) == [b"2"]


@pytest.mark.parametrize("letters_in", ["a journal", "a topic"])
def test_an_error_that_quotes_bytes_which_are_no_text_has_its_dead_letter(topic, witness, tmp_path, letters_in):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"\xff", b"2"])

    def function(record):
        raise ValueError(record.value.decode(errors="surrogateescape"))

    letters = tmp_path / "dead" if letters_in == "a journal" else witness.url(topic)
    stats = jlog.transform(tmp_path / "source", tmp_path / "sink", function, refused="dead-letter", dead_letter=letters)
    assert stats.refused == 2
    with jlog.open_reader(letters) as reader:
        first, _ = reader
    assert dict(first.headers)["jlog.refused"] == rb"the transform raised ValueError: \udcff"
