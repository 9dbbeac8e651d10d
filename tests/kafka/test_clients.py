"""Clients of a flow that has ended are gone at once. A client that waits for the garbage collector may be freed in a thread of
librdkafka's, in which the collector happens to run, and that ends the process."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import jlog
from jlog.flow.stop import Stop, Stopped
from jlog.kafka import Capture, Mirror
from jlog.kafka.client.background import answer_of
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from kafka.processes import fill
from kafka.witness import numbered
from patience import HUNG_SECONDS, wait_until


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
def test_after_an_answer_that_names_an_error(witness):
    """Its traceback has the frames of all callers, and with them whatever they hold."""
    cluster = Cluster(Settings(parse(witness.url("missing"))))
    assert cluster.find("missing") is None


@pytest.mark.usefixtures("none_left")
def test_after_a_stop_while_the_client_is_being_created(witness, monkeypatch):
    begun, go_on, created = threading.Event(), threading.Event(), threading.Event()

    def create(conf):
        begun.set()
        go_on.wait(HUNG_SECONDS)
        client = AdminClient(conf)
        created.set()
        return client

    monkeypatch.setattr("jlog.kafka.client.cluster.AdminClient", create)
    before, stop = clients(), Stop(grace_seconds=0)
    cluster = Cluster(Settings(parse(witness.url("missing"))), stop)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.check)
        assert begun.wait(HUNG_SECONDS)
        stop.request()
        assert isinstance(asked.exception(HUNG_SECONDS), Stopped)
    cluster.close()
    go_on.set()
    assert created.wait(HUNG_SECONDS)
    wait_until(lambda: clients() <= before)  # though the cluster is still held


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
