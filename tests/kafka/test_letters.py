"""Refused records: nothing is aborted for them, and each has one dead letter, wherever the dead letters are."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Producer

import exhaustive
import jlog
from jlog.kafka import BrokerError, Capture, Mirror, Mirrors, RecordRefused, TopicChanged
from jlog.transform import transforming
from jlog.urls import open_reader
from kafka.processes import fill
from kafka.witness import numbered
from patience import HUNG_SECONDS, wait_until

TOO_LARGE = bytes(5000)
KILLED = """
import os, signal, sys
import jlog
from jlog.flow.journals import JournalSink
from jlog.kafka.ends.topic_sink import TopicSink

source, sink, letters, moment, commits = sys.argv[1:6]
kind = TopicSink if sink.startswith("kafka:") else JournalSink
commit, left = kind.commit, int(commits)

def refuse(record):
    if int(record.value) % 3 == 0:
        raise ValueError("no")
    return record

def killed(self):
    global left
    if getattr(self, "name", sink).rpartition("/")[2] == sink.rpartition("/")[2]:  # not that of the dead letters
        left -= 1
        if left < 0:
            if moment == "after":
                commit(self)
            os.kill(os.getpid(), signal.SIGKILL)
    commit(self)

kind.commit = killed
kind.transaction_records = 500
jlog.transforming(source, sink, refuse, until_end=True, refused="dead-letter", dead_letter=letters).run()
"""


@pytest.fixture(params=["journal", "topic"])
def letters(request, tmp_path, witness, topic):
    return str(tmp_path / "letters") if request.param == "journal" else witness.url(f"{topic}.letters")


def read(url):
    with open_reader(url) as reader:
        return list(reader)


def values(url):
    return [record.value for record in read(url)]


def refuses_thirds(record):
    if int(record.value) % 3 == 0:
        raise ValueError("no")
    return record


# --- Nothing is aborted ---------------------------------------------------------------------------------------------


def test_a_record_that_the_topic_refuses_stops_a_mirror_without_an_abort(witness, topic, journal):
    url = witness.make(topic, max_message_bytes=2000)
    fill(journal, 10)
    with jlog.Writer(journal) as writer:
        refused = writer.append(TOO_LARGE)
    fill(journal, 10, 10)
    mirror = Mirror(journal, url, until_end=True)
    with pytest.raises(RecordRefused, match="record 10 is refused: 5000 bytes") as error:
        mirror.run()
    assert (error.value.sequence, mirror.stats.aborted, mirror.stats.records) == (refused, 0, 10)
    assert witness.values(topic, committed=False) == numbered(10)
    assert Mirror(journal, url, until_end=True, refused="skip").run().aborted == 0
    assert witness.values(topic) == numbered(20)


@pytest.mark.parametrize("sink", ["journal", "topic"])
def test_what_a_transform_makes_may_be_refused_without_an_abort(witness, topic, journal, tmp_path, sink):
    """The record that the function returns is one whose headers no sink takes."""
    source = witness.make(topic)
    for number in range(3):
        witness.produce(topic, numbered(5, 5 * number))
        witness.produce_with_header(topic, b"refused", b"n\xff")
    sink = str(journal) if sink == "journal" else witness.url(f"{topic}.sink")
    letters = str(tmp_path / "letters")
    flow = transforming(source, sink, lambda r: r, until_end=True, refused="dead-letter", dead_letter=letters)
    stats = flow.run()
    assert (stats.aborted, stats.refused, stats.records) == (0, 3, 18)
    assert values(sink) == numbered(15)
    assert values(letters) == [b"refused"] * 3


def test_a_stopped_transform_has_moved_all_before_the_record_and_nothing_of_it(witness, topic, journal):
    """The second of two records that are made of one is refused: the first must not be there."""
    url = witness.make(topic, max_message_bytes=2000)
    fill(journal, 10)
    flow = transforming(journal, url, lambda r: [r, TOO_LARGE] if r.value == b"5" else r, until_end=True)
    with pytest.raises(RecordRefused, match="record 5 is refused: 5000 bytes"):
        flow.run()
    assert flow.stats.records == 5
    assert witness.values(topic) == numbered(5)


def test_a_capture_stops_in_each_partition_where_it_was(witness, topic, journal):
    """Nothing after the refused record is passed over when it goes on, with several partitions too."""
    url = witness.make(topic, partitions=3)
    for partition in range(3):
        witness.produce(topic, numbered(50, 50 * partition), partition=partition)
    witness.produce_with_header(topic, b"refused", b"n\xff")
    for partition in range(3):
        witness.produce(topic, numbered(50, 150 + 50 * partition), partition=partition)
    capture = Capture(url, journal, until_end=True)
    with pytest.raises(RecordRefused, match="not UTF-8"):
        capture.run()
    assert capture.stats.aborted == 0
    assert Capture(url, journal, until_end=True, refused="skip").run().refused == 1
    assert sorted(map(int, values(journal))) == list(range(300))


@pytest.mark.parametrize("headers", [[("a", 1)], [(b"a", b"1")], [("\ud800", b"1")]])
def test_headers_that_are_none_are_told_with_their_record(tmp_path, headers):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.append(b"x")
    with pytest.raises(RecordRefused, match=r"record 0 is refused: a record's header"):
        jlog.transform(tmp_path / "source", tmp_path / "sink", lambda r: jlog.NewRecord.like(r, headers=headers))


# --- Dead letters ---------------------------------------------------------------------------------------------------


def test_a_capture_has_dead_letters(witness, topic, journal, letters):
    url = witness.make(topic)
    witness.produce(topic, numbered(5))
    witness.produce_with_header(topic, b"refused", b"n\xff")
    witness.produce(topic, numbered(5, 5))
    stats = Capture(url, journal, until_end=True, refused="dead-letter", dead_letter=letters).run()
    assert (stats.refused, stats.aborted, values(journal)) == (1, 0, numbered(10))
    (letter,) = read(letters)
    about = dict(letter.headers)
    assert letter.value == b"refused"
    assert about["jlog.refused"] == b"the name of one of its headers is not UTF-8"
    assert about["jlog.record"] == f"{url}: partition 0, offset 5".encode()
    assert about["jlog.sink"] == str(journal).encode()


def test_a_mirror_has_dead_letters_in_a_journal(witness, topic, journal, tmp_path):
    """The letters have all of the record, however large it is."""
    url = witness.make(topic, max_message_bytes=2000)
    with jlog.Writer(journal) as writer:
        writer.append(b"1")
        writer.append(TOO_LARGE, key=b"k", headers=[("h", b"1")], timestamp_us=1_700_000_000_123_456)
    Mirror(journal, url, until_end=True, refused="dead-letter", dead_letter=str(tmp_path / "letters")).run()
    assert witness.values(topic) == [b"1"]
    (letter,) = read(tmp_path / "letters")
    assert (letter.value, letter.key, letter.timestamp_us) == (TOO_LARGE, b"k", 1_700_000_000_123_456)
    assert letter.headers[0] == ("h", b"1")


def test_dead_letters_in_their_own_sink_are_refused(tmp_path):
    jlog.Journal.create(tmp_path / "source")
    with pytest.raises(ValueError, match="is the sink"):
        transforming(
            tmp_path / "source", tmp_path / "sink", refuses_thirds, refused="dead-letter", dead_letter=tmp_path / "sink"
        )


def test_dead_letters_in_their_own_source_are_refused(journal, url, witness, topic):
    fill(journal, 1)
    with pytest.raises(ValueError, match="is the source"):
        Mirror(journal, url, refused="dead-letter", dead_letter=journal)
    witness.make(topic)
    with pytest.raises(ValueError, match="is the source"):
        Capture(url, journal, refused="dead-letter", dead_letter=url)


def test_dead_letters_may_go_to_a_topic_that_the_capture_leaves_out(broker, witness, topic, journal):
    witness.make(f"{topic}.in")
    url, letters = f"kafka://{broker.address}/{topic}.*", f"kafka://{broker.address}/{topic}.refused"
    given = {"refused": "dead-letter", "dead_letter": letters, "until_end": True}
    with pytest.raises(ValueError, match="leave this one out with --exclude"):
        Capture(url, journal, **given)
    Capture(url, journal, exclude=["*.refused"], **given).run()


def test_dead_letters_in_the_topic_of_their_own_mirror_are_refused(journal, url, topic):
    fill(journal, 1)
    for place in (url, topic):
        with pytest.raises(ValueError, match="is the sink"):
            Mirror(journal, url, refused="dead-letter", dead_letter=place)
    Mirror(journal, url).close()  # the subscriber's name is free


def test_an_option_that_is_refused_leaves_the_sink_free(tmp_path):
    fill(tmp_path / "source", 3)
    with pytest.raises(ValueError, match="rate"):
        jlog.transform(tmp_path / "source", tmp_path / "sink", lambda record: record, rate=0)
    jlog.transform(tmp_path / "source", tmp_path / "sink", lambda record: record)
    assert len(jlog.Journal(tmp_path / "sink")) == 3


def test_dead_letters_of_a_topic_that_was_made_anew_are_written(witness, topic, journal, tmp_path):
    """Its offsets are the same as those of the old topic."""
    url = witness.make(topic)
    letters = tmp_path / "letters"
    options = {"function": refuses_thirds, "until_end": True, "refused": "dead-letter", "dead_letter": letters}
    witness.produce(topic, numbered(10))
    Capture(url, journal, **options).run()
    witness.delete(topic)
    witness.make(topic)
    witness.produce(topic, numbered(10))
    with pytest.raises(TopicChanged):
        Capture(url, journal, **options).run()
    Capture(url, journal).set_position("begin")
    Capture(url, journal, **options).run()
    assert values(letters) == [b"0", b"3", b"6", b"9"] * 2


PLACES = [
    ("topic", "journal", "journal"),
    exhaustive.only("topic", "journal", "topic"),
    exhaustive.only("journal", "topic", "journal"),
    ("journal", "topic", "topic"),
]


@pytest.mark.parametrize(("source", "sink", "letters"), PLACES)
def test_killed_between_the_letters_and_the_sink_it_has_one_letter_for_each_record(
    witness, topic, tmp_path, source, sink, letters
):
    ends = {"source": source, "sink": sink, "letters": letters}
    urls = {name: witness.url(f"{topic}.{name}") if kind == "topic" else str(tmp_path / name) for name, kind in ends.items()}
    if source == "topic":
        witness.make(f"{topic}.source", partitions=2)
        for partition in range(2):
            witness.produce(f"{topic}.source", numbered(3000, 3000 * partition), partition=partition)
    else:
        fill(urls["source"], 6000)
    for moment, commits in (("before", 1), ("before", 2), ("after", 1), ("before", 1)):
        arguments = [sys.executable, "-c", KILLED, *urls.values(), moment, str(commits)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=HUNG_SECONDS)
        assert done.returncode == -9, done.stderr
    stats = jlog.transform(urls["source"], urls["sink"], refuses_thirds, refused="dead-letter", dead_letter=urls["letters"])
    assert stats.records > 0
    assert sorted(map(int, values(urls["letters"]))) == list(range(0, 6000, 3))
    assert sorted(map(int, values(urls["sink"]))) == [number for number in range(6000) if number % 3]


@pytest.mark.parametrize("created", ["by the flow", exhaustive.only("by another")])
def test_a_flow_goes_on_after_its_topic_of_dead_letters_was_deleted(witness, topic, url, journal, created):
    """Only the letters are gone. The new topic has those that come."""
    letters = f"{topic}.letters"

    def move():
        jlog.transform(journal, url, refuses_thirds, refused="dead-letter", dead_letter=letters)

    fill(journal, 10)
    move()
    witness.delete(letters)
    if created == "by another":
        witness.make(letters)
    move()  # refuses nothing
    fill(journal, 10, 10)
    move()
    fill(journal, 10, 20)
    move()
    assert values(witness.url(letters)) == [b"%d" % number for number in range(12, 30, 3)]
    assert witness.values(topic) == [b"%d" % number for number in range(30) if number % 3]


def test_a_topic_of_dead_letters_that_is_deleted_while_a_flow_runs_ends_it(witness, topic, url, journal):
    letters = f"{topic}.letters"
    options = {"refused": "dead-letter", "dead_letter": letters}
    fill(journal, 10)
    flow = transforming(journal, url, refuses_thirds, **options)
    wait_until(lambda: flow.step(0.1) or flow.stats.records)
    witness.delete(letters)
    fill(journal, 10, 10)
    with pytest.raises(TopicChanged, match=f"{letters}, which has the dead letters, .* the next start"):
        wait_until(lambda: flow.step(0.1) and False)
    flow.close()
    jlog.transform(journal, url, refuses_thirds, **options)
    assert values(witness.url(letters)) == [b"12", b"15", b"18"]
    assert witness.values(topic) == [b"%d" % number for number in range(20) if number % 3]


def test_letters_after_the_open_transaction_of_another_producer_are_not_stored_again(witness, topic, url, journal, broker):
    letters = witness.make(f"{topic}.letters")
    other = Producer({"bootstrap.servers": broker.address, "transactional.id": f"{topic}.other"})
    other.init_transactions()
    other.begin_transaction()
    other.produce(f"{topic}.letters", b"of another")
    other.flush()
    fill(journal, 10)
    killed = [sys.executable, "-c", KILLED, str(journal), url, letters, "before", "1"]
    assert subprocess.run(killed, timeout=HUNG_SECONDS).returncode == -9
    flow = transforming(journal, url, refuses_thirds, until_end=True, refused="dead-letter", dead_letter=letters)
    for _ in range(2):
        assert flow.step() == 0
    assert (flow.stats.retries, flow.is_open) == (2, False)
    assert "another producer has a transaction open" in flow.stats.last_error
    other.abort_transaction()
    flow.run()
    assert values(letters) == [b"0", b"3", b"6", b"9"]
    assert witness.values(topic) == [b"1", b"2", b"4", b"5", b"7", b"8"]


def test_a_topic_of_dead_letters_beside_the_sink_has_as_many_replicas(topic, url, journal):
    """A cluster of one broker refuses to create it with two."""
    fill(journal, 1)
    Mirror(journal, url, until_end=True).run()
    options = {"replication_factor": 2, "refused": "dead-letter", "dead_letter": f"{topic}.refused"}
    with pytest.raises(BrokerError, match=rf"creating topic {topic}\.refused: .*[Rr]eplication"):
        Mirror(journal, url, until_end=True, **options).run()


def test_each_capture_of_a_file_of_mirrors_has_its_own_dead_letters(witness, topic, broker, tmp_path):
    for name in "ab":
        witness.make(f"{topic}.{name}")
        witness.produce(f"{topic}.{name}", [name.encode()])
        witness.produce_with_header(f"{topic}.{name}", b"refused " + name.encode(), b"n\xff")
    (tmp_path / "mirrors.toml").write_text(f"""
        [[from-kafka]]
        url = "kafka://{broker.address}"
        topics = "{topic}.*"
        journal = "{tmp_path}/{{topic}}"
        refused = "dead-letter"
    """)
    mirrors = Mirrors(tmp_path / "mirrors.toml", until_end=True)
    mirrors.run()
    assert mirrors.failures == {}
    for name in "ab":
        assert values(tmp_path / f"{topic}.{name}") == [name.encode()]
        assert values(tmp_path / f"{topic}.{name}.refused") == [b"refused " + name.encode()]
