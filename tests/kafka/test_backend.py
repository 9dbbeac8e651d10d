"""Behaviour of kafka:// URLs that journals do not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, TopicPartition

import jlog
from jlog.kafka import BrokerError, TopicChanged
from jlog.kafka.client.records import KafkaRecord
from jlog.urls import create_journal, open_journal, open_reader, open_writer
from kafka.witness import numbered
from patience import wait_until


def test_a_url_names_one_partition(witness, topic, url):
    witness.make(topic, partitions=3)
    for call in (open_journal, open_reader, open_writer):
        with pytest.raises(ValueError, match=r"partitions 0 to 2.*\?partition=0"):
            call(url)
        with pytest.raises(ValueError, match="3 is not one of them"):
            call(url + "?partition=3")
    with open_writer(url + "?partition=2") as writer:
        writer.append(b"x", key=b"k")
    assert [len(messages) for messages in witness.messages(topic)] == [0, 0, 1]
    with (
        open_reader(url + "?partition=2", "billing") as reader,
        open_reader(url + "?partition=1", "billing") as other,
    ):
        assert [record.value for record in reader] == [b"x"]
        assert list(other) == []
        reader.commit()
        assert (reader.committed, other.committed) == (1, 0)


def test_a_subscriber_is_a_consumer_group(witness, broker, topic, url):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    with open_reader(url, f"group-{topic}") as reader:
        reader.seek(4)
        reader.commit()
    theirs = Consumer({"bootstrap.servers": broker.address, "group.id": f"group-{topic}", "log_level": 0})
    assert theirs.committed([TopicPartition(topic, 0)])[0].offset == 4
    theirs.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    theirs.close()
    with open_reader(url, f"group-{topic}") as reader:
        assert reader.position == 7


def test_a_group_with_members_of_its_own_is_busy(witness, broker, topic, url):
    witness.make(topic)
    theirs = Consumer({"bootstrap.servers": broker.address, "group.id": f"group-{topic}", "log_level": 0})
    theirs.subscribe([topic])
    wait_until(lambda: theirs.poll(0.1) is not None or theirs.assignment())
    try:
        with pytest.raises(jlog.SubscriberBusy, match="member of the group"):
            open_reader(url, f"group-{topic}")
    finally:
        theirs.close()


def test_aborted_transactions_are_not_read_and_lag_ends_at_0(witness, topic, url):
    witness.make(topic)
    witness.produce(topic, numbered(50), transactions=10)
    witness.produce_and_abort(topic, [b"aborted"] * 10)
    witness.produce(topic, numbered(50, 50), transactions=10)
    with open_reader(url, "billing") as reader:
        assert list(reader.values()) == numbered(100)
        assert reader.lag == 0
        assert reader.position == witness.end(topic)
        assert list(reader) == []
        reader.commit()
    assert open_journal(url).subscribers()["billing"].lag == 0


def test_an_extend_in_a_transaction_is_there_as_a_whole(witness, topic, url):
    with open_writer(url, transactional=True) as writer:
        writer.append(b"0")
        writer.extend([b"1", b"2"])
        assert witness.values(topic) == [b"0", b"1", b"2"]
        writer.append(b"3")
        writer.flush()
    assert witness.values(topic) == [b"0", b"1", b"2", b"3"]


def test_append_tells_no_sequence(url):
    with open_writer(url) as writer:
        assert writer.append(b"x") is None
        assert writer.extend([b"x"]) is None


def test_a_fork_closes_the_childs_writer(witness, topic, url):
    """The threads of the client are in the parent, whose writer goes on."""
    witness.make(topic)
    with open_writer(url) as writer:
        writer.append(b"before")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(jlog.JournalClosed):
                    writer.append(b"child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        writer.append(b"after")
    with open_reader(url) as reader:
        assert [record.value for record in reader] == [b"before", b"after"]


def test_an_option_that_a_topic_cannot_have_is_refused(url):
    for options in ({"exclusive": True}, {"roll": "sometimes"}):
        with pytest.raises(ValueError):  # noqa: PT011
            open_writer(url, **options)
    with open_writer(url) as writer, pytest.raises(ValueError, match="state"):
        writer.extend([b"x"], state={b"k": b"v"})


def test_a_journals_options_become_the_topics_settings(witness, topic, url):
    create_journal(url, partitions=2, segment_bytes=8 << 20, roll="hourly", compression="lz4", precommit=0, sync="append")
    found = witness.config(topic)
    assert (found["segment.bytes"], found["segment.ms"], found["compression.type"]) == (
        str(8 << 20),
        "3600000",
        "lz4",
    )
    assert witness.partitions(topic) == 2
    retention = jlog.Retention(max_age=timedelta(days=2), max_bytes=10 << 20)
    create_journal(url + "-aged", retention=retention)
    found = witness.config(f"{topic}-aged")
    assert (found["retention.ms"], found["retention.bytes"]) == ("172800000", str(10 << 20))


def test_times_are_kept_to_the_millisecond(witness, topic):
    url = witness.make(topic, retention_ms=-1)
    with open_writer(url) as writer:
        writer.append(b"x", timestamp_us=1_700_000_000_123_999)
    with open_reader(url) as reader:
        assert [record.timestamp_us for record in reader] == [1_700_000_000_123_000]


def test_retention_heeds_no_subscriber_and_late_ones_are_told(witness, topic, url):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    with open_reader(url, "billing") as reader:
        reader.checkpoint("early")
    witness.remove_before(topic, 6)
    with open_reader(url, "billing") as reader:
        assert reader.lag == 4
        with pytest.raises(jlog.PositionLost) as caught:
            reader.read()
        assert caught.value.first_sequence == 6
        for call in (lambda: reader.seek(3), lambda: reader.rewind("early")):
            with pytest.raises(jlog.PositionLost):
                call()
        reader.seek(caught.value.first_sequence)
        assert list(reader.values()) == numbered(4, 6)


def test_positions_of_a_topic_that_was_made_again_do_not_count(witness, topic, url):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    writer = open_writer(url)
    with open_reader(url, "billing") as reader:
        reader.seek(5)
        reader.checkpoint("five")
        witness.delete(topic)
        witness.make(topic)
        witness.produce(topic, numbered(10))
        with pytest.raises(TopicChanged, match="created again"):
            reader.commit()
    writer.append(b"x")
    with pytest.raises(TopicChanged):
        writer.close()
    assert open_journal(url).checkpoints() == {}


def test_what_another_tool_has_stored_with_an_offset_is_not_taken_for_the_id_of_a_topic(witness, topic, url):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    other = Consumer({"bootstrap.servers": witness.address, "group.id": topic})
    other.commit(offsets=[TopicPartition(topic, 0, 4, "of another tool")], asynchronous=False)
    other.close()
    with open_reader(url, topic) as reader:
        assert reader.committed == 4
        assert next(iter(reader)).value == b"4"
        reader.commit()
    with open_reader(url, topic) as reader:
        assert reader.committed == 5


def test_a_topic_that_goes_away_fails_the_flush_with_the_reason(witness, topic, url):
    witness.make(topic)
    writer = open_writer(url, config={"message.timeout.ms": 2000})
    writer.append(b"x")
    writer.flush()
    witness.delete(topic)
    writer.append(b"y")
    with pytest.raises((BrokerError, TopicChanged), match=r"gone|deleted|Unknown"):
        writer.close()


def test_no_broker_at_all_is_an_error_with_the_reason(topic):
    with pytest.raises(BrokerError, match="refused"):
        open_reader(f"kafka://127.0.0.1:1/{topic}")


def test_a_killed_readers_name_is_free_when_its_session_ends(witness, topic, url):
    witness.make(topic)
    code = f"""
import signal
from jlog.kafka.topic import groups
from jlog.urls import open_reader
groups.SESSION_SECONDS = 3
reader = open_reader({url!r}, "billing")
print("open", flush=True)
signal.pause()
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(jlog.SubscriberBusy):
            open_reader(url, "billing")
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    wait_until(lambda: not open_journal(url).subscribers()["billing"].busy)
    with open_reader(url, "billing") as reader:
        assert reader.position == 0


def test_a_record_of_kafkas_says_where_it_was(witness, topic, url):
    witness.make(topic)
    witness.produce(topic, [b"x"])
    with open_reader(url) as reader:
        (record,) = reader
        reader.seek(0)
        (again,) = reader
    assert isinstance(record, KafkaRecord)
    assert (record.topic, record.partition, record.sequence) == (topic, 0, 0)
    assert record == again
    assert topic in repr(record)


def test_headers_may_be_a_dict_as_in_a_journal(witness, topic, url):
    with open_writer(url) as writer:
        writer.append(b"v", headers={"a": b"1", "trace": None})
        writer.extend([b"w"], headers=[{"b": b"2"}])
    with open_reader(url) as reader:
        assert [list(record.headers) for record in reader] == [[("a", b"1"), ("trace", None)], [("b", b"2")]]


def test_a_record_that_the_topic_would_refuse_is_refused_alone(witness, topic, url):
    """The broker refuses the whole batch."""
    with open_writer(url) as writer:
        writer.append(b"before")
        with pytest.raises(ValueError, match="its time is too far from now"):
            writer.append(b"refused", timestamp_us=1 << 62)
        with pytest.raises(TypeError):
            writer.append(b"refused", timestamp_us="1")
        writer.append(b"after")
    with open_reader(url) as reader:
        assert [record.value for record in reader] == [b"before", b"after"]
