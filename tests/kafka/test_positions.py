"""`mirror positions`: where a flow goes on is set once, for all of its source or for one part of it."""

from __future__ import annotations

import pytest

import jlog
from jlog.kafka import Capture, Mirror, TopicChanged, status, verify
from jlog.kafka.status import find_pair
from jlog.transform import transforming
from kafka.processes import stored
from kafka.test_command import do, do_json, run
from kafka.witness import numbered
from patience import wait_until


def values(journal):
    with jlog.Reader(journal) as reader:
        return sorted(reader.values())


@pytest.fixture
def two(witness, topic, broker, journal):
    """Two captured topics with records that are not captured yet. The second one was created again."""
    first, second = f"{topic}.a", f"{topic}.b"
    url = f"kafka://{broker.address}/{first},{second}"
    for name in (first, second):
        witness.make(name)
        witness.produce(name, numbered(10))
    Capture(url, journal, until_end=True).run()
    witness.produce(first, numbered(5, 10))
    witness.delete(second)
    witness.make(second)
    witness.produce(second, numbered(7, 100))
    return url, first, second


@pytest.mark.parametrize("position", ["begin", "end"])
def test_a_topic_made_again_is_set_alone(two, journal, position):
    """Neither is the other topic captured twice, nor are records of it passed over."""
    url, first, second = two
    with pytest.raises(TopicChanged, match=f"positions set .* {second} begin"):
        Capture(url, journal, until_end=True).run()
    do("mirror", "positions", "set", url, journal, second, position)
    Capture(url, journal, until_end=True).run()
    again = numbered(7, 100) if position == "begin" else []
    assert values(journal) == sorted([*numbered(10), *numbered(10), *numbered(5, 10), *again])
    assert stored(url, journal) == {f"{first}/0": 15, f"{second}/0": 7}


@pytest.mark.parametrize("direction", [Mirror, Capture])
def test_a_topic_made_again_has_no_status_until_a_position_is_set(witness, topic, url, journal, direction):
    """Its lag would be that of the old topic, which was 0."""
    ends = [journal, url] if direction is Mirror else [url, journal]
    witness.make(topic, partitions=2)
    with jlog.Writer(journal) as writer:
        writer.append(b"value")
    direction(*ends, until_end=True).run()
    witness.delete(topic)
    witness.make(topic)
    for call in (status, verify):
        with pytest.raises(TopicChanged, match="was deleted and created again"):
            call(journal, url)
    direction(*ends).set_position("begin")
    assert status(journal, url).lag.records == (1 if direction is Mirror else 0)


def test_a_position_is_set_once(two, journal):
    """The next starts go on after the records that were moved since."""
    url, _, _ = two
    Capture(url, journal).set_position("begin")
    moved = [Capture(url, journal, until_end=True).run().records for _ in range(2)]
    assert moved == [22, 0]


def test_one_partition_is_set(witness, topic, url, journal):
    witness.make(topic, partitions=3)
    for partition in range(3):
        witness.produce(topic, numbered(10), partition=partition)
    Capture(url, journal, until_end=True).run()
    do("mirror", "positions", "set", url, journal, f"{topic}/1", 4)
    assert stored(url, journal) == {f"{topic}/0": 10, f"{topic}/1": 4, f"{topic}/2": 10}
    assert Capture(url, journal, until_end=True).run().records == 6


def test_partitions_of_an_earlier_topic_have_no_position(witness, topic, url, journal):
    witness.make(topic, partitions=3)
    Capture(url, journal).set_position("begin")
    assert len(stored(url, journal)) == 3
    witness.delete(topic)
    witness.make(topic, partitions=2)
    Capture(url, journal).set_position("begin")
    assert len(stored(url, journal)) == 2


@pytest.mark.parametrize(
    ("part", "position", "said"),
    [
        ("{topic}/0", "11", "offsets 0 to 10; 11 is not one of them"),
        ("{topic}/9", "begin", "has the partitions 0 to 1"),
        ("other", "begin", "give a part as TOPIC or TOPIC/PARTITION"),
        ("{topic}", "3", "one offset is ambiguous"),
    ],
)
def test_a_position_that_is_none_is_refused(witness, topic, url, journal, part, position, said):
    witness.make(topic, partitions=2)
    witness.produce(topic, numbered(10))
    Capture(url, journal, until_end=True).run()
    before = stored(url, journal)
    code, _, error = run("mirror", "positions", "set", url, journal, part.format(topic=topic), position)
    assert code == 2
    assert said in error
    assert stored(url, journal) == before


def test_a_running_capture_keeps_its_positions(witness, topic, url, journal, processes):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    running = processes("from-kafka", url, journal)
    wait_until(lambda: stored(url, journal) == {f"{topic}/0": 10})
    code, _, error = run("mirror", "positions", "set", url, journal, "begin")
    assert code == 1
    assert "another capture" in error
    assert running.end() == (0, "")
    assert stored(url, journal) == {f"{topic}/0": 10}


def test_a_mirror_goes_on_where_it_is_set(url, journal, witness, topic):
    with jlog.Writer(journal) as writer:
        writer.extend(numbered(10))
    Mirror(journal, url, until_end=True).run()
    assert do_json("mirror", "positions", "ls", journal, url) == [{"part": str(journal), "position": 10, "begin": 0}]
    do("mirror", "positions", "set", journal, url, "8")
    assert jlog.Journal(journal).subscribers()[f"kafka:{topic}"].sequence == 8
    for _ in range(2):
        Mirror(journal, url, until_end=True).run()
    assert witness.values(topic) == [*numbered(10), b"8", b"9"]
    code, _, error = run("mirror", "positions", "set", journal, url, "11")
    assert (code, "from 0 to 10, not 11" in error) == (2, True)


@pytest.mark.parametrize("kinds", [("journal", "topic"), ("topic", "topic"), ("journal", "journal")])
def test_a_transform_goes_on_where_it_is_set(kinds, tmp_path, witness, topic):
    """No second subscriber appears, which would hold records back for ever."""
    source, sink = (
        witness.make(f"{topic}.{name}") if kind == "topic" else str(tmp_path / name)
        for kind, name in zip(kinds, ("source", "sink"), strict=True)
    )
    with jlog.open_writer(source) as writer:
        writer.extend(numbered(10))
    records = lambda: transforming(source, sink, lambda record: record, until_end=True).run().records  # noqa: E731
    assert records() == 10
    subscribers = list(jlog.Journal(source).subscribers()) if kinds[0] == "journal" else []
    do("mirror", "positions", "set", source, sink, "begin")
    assert [row["position"] for row in do_json("mirror", "positions", "ls", source, sink)] == [0]
    assert [records(), records()] == [10, 0]
    if kinds[0] == "journal":
        assert list(jlog.Journal(source).subscribers()) == subscribers


def test_a_position_that_does_not_exist_changes_nothing(journal, url):
    with jlog.Writer(journal) as writer:
        writer.extend(numbered(10))
    Mirror(journal, url, until_end=True).run()
    before = find_pair(journal, url).source_positions
    with pytest.raises(ValueError, match="999999"):
        Mirror(journal, url).set_position(999999)
    assert find_pair(journal, url).source_positions == before
    assert verify(journal, url).compared == 10
