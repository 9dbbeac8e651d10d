"""The consumer of whole batches, against brokers that answer as a test wants it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError

from jlog.kafka.client.consumers import At, PlainMessages
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from jlog.kafka.protocol import consumer as module
from jlog.kafka.protocol.connection import Lost, Pending
from jlog.kafka.protocol.messages import EpochEnd, Fetched, Leader, TopicFound
from record_batches import batch

NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION


class Brokers:
    """Two brokers. They answer when the consumer waits, by the functions that the test sets."""

    def __init__(self):
        self.topics = {"topic": TopicFound(0, {0: Leader(1, 5)})}
        self.on_fetch = lambda at: Fetched(0, at.offset, 0, [], memoryview(b""))
        self.on_check = lambda asked: EpochEnd(0, asked[1], 1 << 40)
        self.on_refresh = lambda: None
        self.knows = True
        self.fetches, self.checks, self.refreshed, self.pending = [], [], 0, []

    def pump(self, _seconds):
        pending, self.pending = self.pending, []
        for (kind, places), answer in pending:
            try:
                if kind == "fetch":
                    self.fetches += places.items()
                    answer.value = 0, {place: self.on_fetch(at) for place, at in places.items()}
                else:
                    self.checks += places.items()
                    answer.value = {place: self.on_check(asked) for place, asked in places.items()}
            except Lost as lost:
                answer.lost = lost
            answer._tell()

    def refresh(self, _topics):
        yield
        self.refreshed += 1
        self.on_refresh()

    def leader(self, place):
        found = self.topics[place[0]].leaders.get(place[1])
        return None if found is None or found.node < 0 else found

    def node(self, _number):
        return SimpleNamespace(is_ready=True, knows=lambda: self.knows, ask=self.ask)

    def ask(self, request, told):
        answer = Pending(None, told)
        self.pending.append((request, answer))
        return answer

    def close(self):
        pass


class Other:
    """The consumer that goes on."""

    def __init__(self):
        self.assigned = []
        self.is_closed = False

    def assign(self, places):
        self.assigned.append([*places])

    def consume(self, _count, _seconds):
        return PlainMessages(), []

    def close(self):
        self.is_closed = True


@pytest.fixture
def brokers(monkeypatch):
    found = Brokers()
    monkeypatch.setattr(module, "Brokers", lambda *_: found)
    monkeypatch.setattr(module, "fetch", lambda places, **_: ("fetch", places))
    monkeypatch.setattr(module, "offset_for_leader_epoch", lambda places: ("check", places))
    return found


@pytest.fixture
def other():
    return Other()


@pytest.fixture
def consumer(brokers, other):
    opened = module.BatchConsumer(Settings(parse("kafka://127.0.0.1:9/topic"), {}), lambda: other)
    yield opened
    opened.close()


def log(*batches):
    """Answers from these batches, as a broker does: the one that has the offset and all behind it."""
    ends = []
    for one in batches:
        offset, last = int.from_bytes(one[:8], "big"), int.from_bytes(one[23:27], "big")
        ends.append(offset + last + 1)

    def answer(at):
        data = b"".join(one for one, end in zip(batches, ends, strict=True) if end > at.offset)
        return Fetched(0, max(ends), 0, [], memoryview(data))

    return answer


def got(consumer, count=100):
    """Waits for something, and returns the values and the events: their number, and the code and the offset of each."""
    for _ in range(1000):
        messages, events = consumer.consume(count, 0.01)
        if len(messages) or events:
            return [message.value() for message in messages], [
                (before, event.error.code(), event.offset) for before, event in events
            ]
    raise AssertionError("nothing came")


def nothing_more(consumer):
    return all(not len(messages) and not events for messages, events in (consumer.consume(100, 0.01) for _ in range(20)))


AT = [At("topic", 0, 0)]
EOF = KafkaError._PARTITION_EOF


def test_messages_come_in_pieces_and_the_end_is_told_once(consumer, brokers):
    brokers.on_fetch = log(batch([b"0", b"1", b"2"]), batch([b"3"], 3))
    consumer.assign(AT)
    assert got(consumer, 2) == ([b"0", b"1"], [])
    assert got(consumer, 2) == ([b"2", b"3"], [])
    assert got(consumer, 2) == ([], [(0, EOF, 4)])
    assert nothing_more(consumer)
    brokers.on_fetch = log(batch([b"4"], 4))
    assert got(consumer) == ([b"4"], [])
    assert got(consumer) == ([], [(0, EOF, 5)])


def test_what_was_fetched_ahead_is_forgotten_with_the_next_assignment(consumer, brokers):
    brokers.on_fetch = log(batch([b"0", b"1", b"2"]))
    consumer.assign(AT)
    assert got(consumer, 1)[0] == [b"0"]
    consumer.assign(AT)
    assert got(consumer)[0] == [b"0", b"1", b"2"]
    consumer.assign([])
    assert nothing_more(consumer)


def test_an_answer_for_an_earlier_assignment_is_left_alone(consumer, brokers):
    brokers.on_fetch = log(batch([b"0", b"1", b"2"]))
    consumer.assign(AT)
    while not brokers.pending:
        consumer.consume(1, 0)
    pending, brokers.pending = brokers.pending, []
    consumer.assign([At("topic", 0, 2)])
    brokers.pending = pending
    assert got(consumer)[0] == [b"2"]


@pytest.mark.parametrize(
    "code", [NOT_LEADER, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_a_leader_that_has_moved_is_found(consumer, brokers, code):
    answer = log(batch([b"0"]))
    brokers.on_fetch = lambda at: answer(at) if at.leader_epoch == 6 else Fetched(code, -1, -1, [], memoryview(b""))

    def move():
        if brokers.refreshed > 2:
            brokers.topics["topic"] = TopicFound(0, {0: Leader(2, 6)})

    brokers.on_refresh = move
    consumer.assign(AT)
    assert got(consumer)[0] == [b"0"]
    assert brokers.refreshed >= 3


def test_a_lost_connection_is_made_again(consumer, brokers):
    answer, turns = log(batch([b"0"])), []

    def lose(at):
        turns.append(at)
        if len(turns) < 3:
            raise Lost("the broker has closed the connection")
        return answer(at)

    brokers.on_fetch = lose
    consumer.assign(AT)
    assert got(consumer)[0] == [b"0"]


def test_a_connection_that_ends_while_a_request_is_sent_is_made_again(consumer, brokers):
    brokers.on_fetch = log(batch([b"0"]))
    ask, lost = brokers.ask, []

    def fail(request, told):
        if lost:
            return ask(request, told)
        answer = Pending(None, told)
        lost.append(answer)
        answer.lose(Lost("broken pipe"))
        return answer

    brokers.ask = fail
    consumer.assign(AT)
    assert got(consumer)[0] == [b"0"]
    assert lost


def test_a_partition_without_a_leader_is_waited_for(consumer, brokers):
    brokers.on_fetch = log(batch([b"0"]))
    brokers.topics["topic"] = TopicFound(0, {0: Leader(-1, 5)})
    consumer.assign(AT)
    assert nothing_more(consumer)
    brokers.topics["topic"] = TopicFound(0, {0: Leader(2, 6)})
    assert got(consumer)[0] == [b"0"]


def test_an_offset_that_is_gone_is_told_behind_what_was_read(consumer, brokers):
    answer = log(batch([b"0"]))
    brokers.on_fetch = lambda at: (
        answer(at)._replace(end=9) if at.offset == 0 else Fetched(KafkaError.OFFSET_OUT_OF_RANGE, -1, -1, [], memoryview(b""))
    )
    consumer.assign(AT)
    assert got(consumer) == ([b"0"], [])
    assert got(consumer) == ([], [(0, KafkaError.OFFSET_OUT_OF_RANGE, 1)])
    assert nothing_more(consumer)
    consumer.assign(AT)
    assert got(consumer) == ([b"0"], [])


def test_an_error_of_the_partition_is_told_and_it_is_tried_again(consumer, brokers):
    code = KafkaError.TOPIC_AUTHORIZATION_FAILED
    brokers.on_fetch = lambda _: Fetched(code, -1, -1, [], memoryview(b""))
    consumer.assign(AT)
    assert got(consumer) == ([], [(0, code, 0)])
    brokers.on_fetch = log(batch([b"0"]))
    assert got(consumer)[0] == [b"0"]


def test_an_error_of_the_topic_is_told(consumer, brokers):
    brokers.topics["topic"] = TopicFound(KafkaError.TOPIC_AUTHORIZATION_FAILED, {})
    consumer.assign(AT)
    assert got(consumer) == ([], [(0, KafkaError.TOPIC_AUTHORIZATION_FAILED, 0)])


def test_a_topic_that_stays_unknown_is_told(consumer, brokers, monkeypatch):
    brokers.topics["topic"] = TopicFound(KafkaError.UNKNOWN_TOPIC_OR_PART, {})
    consumer.assign(AT)
    assert nothing_more(consumer)
    monkeypatch.setattr(module, "UNKNOWN_SECONDS", 0)
    assert got(consumer) == ([], [(0, KafkaError.UNKNOWN_TOPIC_OR_PART, 0)])


# --- Lost tails (KIP-320) -------------------------------------------------------------------------------------------


def test_a_position_is_checked_before_it_is_read_on(consumer, brokers):
    brokers.on_fetch = log(batch([b"7"], 7, leader_epoch=5))
    consumer.assign([At("topic", 0, 7, 4)])
    assert got(consumer)[0] == [b"7"]
    assert brokers.checks == [(("topic", 0), (5, 4))]


@pytest.mark.parametrize("end", [EpochEnd(0, 4, 6), EpochEnd(0, -1, -1), EpochEnd(0, 3, 2)])
def test_a_lost_tail_is_told(consumer, brokers, end):
    brokers.on_check = lambda _: end
    consumer.assign([At("topic", 0, 7, 4)])
    assert got(consumer) == ([], [(0, KafkaError._LOG_TRUNCATION, 7)])
    assert nothing_more(consumer)
    assert not brokers.fetches


def test_a_new_leader_is_asked_about_the_last_batch(consumer, brokers):
    brokers.on_fetch = log(batch([b"0", b"1"], leader_epoch=5))
    consumer.assign(AT)
    assert got(consumer)[0] == [b"0", b"1"]
    assert got(consumer) == ([], [(0, EOF, 2)])
    assert not brokers.checks
    brokers.on_fetch = lambda at: Fetched(NOT_LEADER if at.leader_epoch == 5 else 0, 2, 0, [], memoryview(b""))
    brokers.topics["topic"] = TopicFound(0, {0: Leader(2, 6)})
    assert nothing_more(consumer)
    assert brokers.checks == [(("topic", 0), (6, 5))]
    brokers.on_check = lambda _: EpochEnd(0, 5, 1)
    brokers.topics["topic"] = TopicFound(0, {0: Leader(1, 7)})
    assert got(consumer) == ([], [(0, KafkaError._LOG_TRUNCATION, 2)])


def test_a_check_is_asked_again_until_it_is_answered(consumer, brokers):
    brokers.on_fetch = log(batch([b"7"], 7, leader_epoch=5))
    answers = [EpochEnd(NOT_LEADER, -1, -1), EpochEnd(KafkaError.FENCED_LEADER_EPOCH, -1, -1), EpochEnd(0, 4, 7)]
    brokers.on_check = lambda _: answers.pop(0)
    consumer.assign([At("topic", 0, 7, 4)])
    assert got(consumer)[0] == [b"7"]
    assert not answers


# --- Another consumer goes on ---------------------------------------------------------------------------------------


def damaged(data):
    found = bytearray(data)
    found[-1] ^= 1
    return bytes(found)


@pytest.mark.parametrize(
    "strange", [damaged(batch([b"2"], 2)), batch([b"2"], 2, attributes=1), bytes(200)], ids=["damaged", "gzip", "zeros"]
)
def test_another_consumer_goes_on_exactly_behind_what_was_handed_out(consumer, brokers, other, strange):
    good = batch([b"0", b"1"], leader_epoch=3)
    brokers.on_fetch = lambda at: Fetched(0, 3, 0, [], memoryview(good + strange if at.offset == 0 else strange))
    consumer.assign([At("topic", 0, 0)])
    assert got(consumer, 1)[0] == [b"0"]
    assert not other.assigned
    assert got(consumer)[0] == [b"1"]
    assert nothing_more(consumer)
    assert other.assigned == [[At("topic", 0, 2, 3)]]
    consumer.assign(AT)
    assert other.assigned[1:] == [AT]
    consumer.close()
    assert other.is_closed


def test_another_consumer_goes_on_where_a_broker_is_too_old(consumer, brokers, other):
    brokers.knows = False
    consumer.assign([At("topic", 0, 7, 4)])
    assert nothing_more(consumer)
    assert other.assigned == [[At("topic", 0, 7, 4)]]


def test_batches_that_are_never_whole_do_not_hang_it(consumer, brokers, other):
    brokers.on_fetch = lambda _: Fetched(0, 1, 0, [], memoryview(batch([b"0"])[:-1]))
    consumer.assign(AT)
    for _ in range(100):
        consumer.consume(1, 0.01)
    assert other.assigned == [AT]


def test_no_more_is_fetched_than_may_wait(consumer, brokers, monkeypatch):
    monkeypatch.setattr(module, "QUEUED_BYTES", 200_000)
    monkeypatch.setattr(module, "TAKEN_BYTES", 50_000)
    brokers.on_fetch = lambda place: Fetched(0, 1 << 40, 0, [], memoryview(batch([bytes(100_000)], place.offset)))
    consumer.assign(AT)
    for turn in range(20):
        messages, _ = consumer.consume(1, 0.1)
        assert len(brokers.fetches) <= turn + 5
        assert len(messages) <= 1


@pytest.mark.parametrize(
    ("settings", "group", "is_it"),
    [
        ({}, None, True),
        ({"fetch.wait.max.ms": "10", "fetch.message.max.bytes": 1000, "client.id": "x"}, None, True),
        ({}, "group", False),
        ({"fetch.min.bytes": "100"}, None, False),
        ({"security.protocol": "ssl"}, None, False),
        ({"fetch.wait.max.ms": "long"}, None, False),
    ],
)
def test_settings_that_it_does_not_know_are_for_the_library(settings, group, is_it):
    found = Settings(parse("kafka://127.0.0.1:9/topic"), settings)
    assert module.is_for_batches(found, group) is is_it
