"""Clients of a flow that has ended are gone at once. A client that waits for the garbage collector may be freed in a thread of
librdkafka's, in which the collector happens to run, and that ends the process."""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import jlog
from jlog.flow.stop import Stop
from jlog.kafka import Capture, Mirror
from jlog.kafka.client.background import answer_of
from kafka.processes import fill
from kafka.witness import numbered
from patience import wait_until


def clients():
    return sum(isinstance(found, (AdminClient, Consumer, Producer)) for found in gc.get_objects())


@pytest.fixture
def none_left(witness):  # which has a client of its own
    gc.collect()
    gc.disable()
    before = clients()
    yield
    try:
        wait_until(lambda: clients() <= before)  # the thread of a watcher ends a moment later
    finally:
        gc.enable()


def refuse_some(record):
    if int(record.value) % 10 == 3:
        raise ValueError("no")
    return record


@pytest.mark.usefixtures("none_left")
@pytest.mark.parametrize("refused", ["stop", "skip", "dead-letter"])
def test_after_refused_records(witness, topic, tmp_path, refused):
    fill(tmp_path / "source", 100)
    letters = {"dead_letter": witness.url(f"{topic}.letters")} if refused == "dead-letter" else {}
    for sink in (witness.url(topic), tmp_path / "sink"):
        with suppress(jlog.JournalError):
            jlog.transform(tmp_path / "source", sink, refuse_some, refused=refused, **letters)


@pytest.mark.usefixtures("none_left")
def test_after_an_answer_that_is_an_error():
    client = AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(KafkaException):
        answer_of(partial(client.list_topics, timeout=0.001), Stop())


@pytest.mark.usefixtures("none_left")
def test_after_errors(witness, topic, url, tmp_path):
    """Those of a topic that is deleted while a flow runs, and of brokers that do not answer."""
    fill(tmp_path / "source", 10)
    mirror = Mirror(tmp_path / "source", url)
    while mirror.stats.records < 10:
        mirror.step(timeout=1)
    witness.make(f"{topic}.captured")
    witness.produce(f"{topic}.captured", numbered(10))
    capture = Capture(f"{url}.captured", tmp_path / "sink")
    while capture.stats.records < 10:
        capture.step(timeout=1)
    for flow, name in ((mirror, topic), (capture, f"{topic}.captured")):
        witness.delete(name)
        with suppress(jlog.JournalError):
            flow.run()
    with suppress(jlog.JournalError):
        Mirror(tmp_path / "source", "kafka://127.0.0.1:1/topic").run()
    with suppress(jlog.JournalError):
        Capture("kafka://127.0.0.1:1/topic", tmp_path / "sink").run()
