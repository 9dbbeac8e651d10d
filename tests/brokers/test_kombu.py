"""The transport of kombu alone: its queues, exchanges and messages in a directory of journals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.asynchronous.hub import Hub
from kombu.pidbox import Mailbox
from kombu.utils.uuid import uuid

import jlog
import jlog.celery
from jlog.celery import temporary
from jlog.celery.queues import Queues
from patience import HUNG_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kombu import Message


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], Connection]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(f"jlog://{tmp_path}/broker"))


def test_a_message_goes_to_one_consumer_and_is_gone_once_it_is_acknowledged(connect: Callable[[], Connection]) -> None:
    one, other = connect(), connect()
    queue = one.SimpleQueue("jobs")
    queue.put({"number": 1})
    queue.put({"number": 2})
    first = queue.get(timeout=5)
    second = other.SimpleQueue("jobs").get(timeout=5)
    assert [first.payload, second.payload] == [{"number": 1}, {"number": 2}]
    assert queue.qsize() == 2
    first.ack()
    second.reject()
    assert queue.qsize() == 0


def test_a_message_that_is_requeued_or_left_comes_again(connect: Callable[[], Connection]) -> None:
    one = connect()
    queue = one.SimpleQueue("jobs")
    queue.put("again")
    queue.get(timeout=5).requeue()
    queue.get(timeout=5)
    one.release()
    found = connect().SimpleQueue("jobs").get(timeout=5)
    assert found.payload == "again"
    found.ack()


def test_a_topic_and_a_fanout_reach_the_queues_that_other_processes_have_bound(connect: Callable[[], Connection]) -> None:
    topic, news = Exchange("logs", "topic"), Exchange("news", "fanout")
    consumer = connect().channel()
    for name, exchange, key in (("errors", topic, "*.error"), ("all", topic, "#"), ("one", news, ""), ("two", news, "")):
        Queue(name, exchange, key)(consumer).declare()
    producer = connect().Producer()
    producer.publish("bad", exchange=topic, routing_key="web.error")
    producer.publish("good", exchange=topic, routing_key="web.info")
    producer.publish("extra", exchange=news)
    found = {name: [] for name in ("errors", "all", "one", "two")}
    for name, payloads in found.items():
        while (message := consumer.basic_get(name, no_ack=True)) is not None:
            payloads.append(message.payload)
    assert found == {"errors": ["bad"], "all": ["bad", "good"], "one": ["extra"], "two": ["extra"]}


def test_a_requeued_message_says_so_when_it_comes_again_and_ends_in_the_dead_letters(tmp_path: Path) -> None:
    options = {"max_attempts": 3, "dead_letters": f"{tmp_path}/dead", "backoff": (0.01, 0.02)}
    again = []
    with Connection(f"jlog://{tmp_path}/broker", transport_options={"worker": options}) as connection:
        queue = connection.SimpleQueue("jobs")
        queue.put("refused")
        for _ in range(3):
            message = queue.get(timeout=HUNG_SECONDS)
            again.append(message.delivery_info["redelivered"])
            message.requeue()
        assert queue.qsize() == 0
    assert again == [False, True, True]
    assert len(jlog.Journal(tmp_path / "dead")) == 1


@pytest.mark.parametrize("value", [b"\xff", b"[]", b"{}", b"1", None, b'{"properties": {}}'])
def test_a_record_that_is_not_a_message_goes_to_the_dead_letters_and_holds_up_no_other(
    tmp_path: Path, value: bytes | None
) -> None:
    options = {"dead_letters": f"{tmp_path}/dead"}
    with Connection(f"jlog://{tmp_path}/broker", transport_options={"worker": options}) as connection:
        queue = connection.SimpleQueue("jobs")
        with jlog.Writer(next((tmp_path / "broker").glob("**/jobs"))) as writer:
            writer.append(value)
        queue.put("done")
        message = queue.get(timeout=HUNG_SECONDS)
        message.ack()
    assert message.payload == "done"
    with jlog.Reader(tmp_path / "dead", "look") as reader:
        assert [record.value for record in reader] == [value]


def test_a_message_that_has_expired_is_not_delivered(connect: Callable[[], Connection]) -> None:
    queue = connect().SimpleQueue("jobs")
    queue.put("too late", expiration=0.001)
    queue.put("in time", expiration=3600)
    end = time.time() + 0.002
    wait_until(lambda: time.time() > end)
    message = queue.get(timeout=HUNG_SECONDS)
    assert message.payload == "in time"
    message.ack()
    assert queue.qsize() == 0


def test_what_is_unbound_gets_nothing_any_more(connect: Callable[[], Connection]) -> None:
    channel = connect().channel()
    queue = Queue("all", Exchange("logs", "topic"), "#")(channel)
    queue.declare()
    queue.unbind_from(Exchange("logs", "topic"), "#")
    connect().Producer().publish("lost", exchange=Exchange("logs", "topic"), routing_key="web.error")
    assert channel.basic_get("all") is None


def test_threads_that_publish_for_the_first_time_at_once(tmp_path: Path) -> None:
    threads, turns = 8, 30
    together = threading.Barrier(threads)
    failures: list[BaseException] = []

    def publish() -> None:
        with Connection(f"jlog://{tmp_path}/broker") as connection:
            producer = connection.Producer()
            for turn in range(turns):
                queue = Queue(f"queue{turn}", Exchange(f"exchange{turn}"), "key")
                together.wait()
                try:
                    producer.publish("value", exchange=queue.exchange, routing_key="key", declare=[queue])
                except BaseException as error:  # noqa: BLE001 - shown below
                    failures.append(error)

    started = [threading.Thread(target=publish) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failures
    with Connection(f"jlog://{tmp_path}/broker") as connection:
        sizes = [connection.default_channel.queue_declare(f"queue{turn}").message_count for turn in range(turns)]
    assert sizes == [threads] * turns


def test_purging_and_deleting_a_queue(connect: Callable[[], Connection], tmp_path: Path) -> None:
    connection = connect()
    queue = connection.SimpleQueue("jobs")
    for _ in range(5):
        queue.put("value")
    assert queue.clear() == 5
    assert queue.qsize() == 0
    connection.channel().queue_delete("jobs")
    assert (tmp_path / "broker" / "queues" / "jobs" / "journal.meta").exists(), "another channel uses it"
    connection.default_channel.queue_delete("jobs")
    assert not (tmp_path / "broker" / "queues" / "jobs" / "journal.meta").exists()


def test_a_queue_whose_directory_was_removed_is_begun_anew(tmp_path: Path) -> None:
    queues, path = Queues(tmp_path, writer={}, worker={}), tmp_path / "queues" / "jobs"
    queues.put("jobs", b"old")
    held, in_use = queues.take("jobs"), queues._writers["jobs"]
    assert held is not None
    shutil.rmtree(path)
    queues.declare("jobs")
    wait_until(lambda: queues.put("jobs", b"new") or jlog.Journal(path).next_sequence > 0)
    with pytest.raises(jlog.JournalMoved):  # another thread learns the same, and goes on in the same way
        in_use.append(b"of another thread")
    tasks = []  # a task that nobody refers to is given back, and here its record is gone
    wait_until(lambda: tasks.append(queues.take("jobs")) or jlog.Journal(path).subscribers()["celery"].busy)
    held.ack()
    queues.close()


# --- Connecting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["jlog://", "jlog://host/var/lib/app"])
def test_a_url_without_a_directory_or_with_a_host_is_refused(url: str) -> None:
    connection = Connection(url)
    with pytest.raises(connection.connection_errors, match=r"write jlog:///var/lib/app"):
        connection.channel()


def test_a_connection_goes_on_to_the_next_url_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    urls = [f"jlog://{tmp_path}/file/below", "jlog://host/var/lib/app", f"jlog://{tmp_path}/broker"]
    with Connection(urls) as connection:
        connection.ensure_connection(max_retries=len(urls), interval_start=0, interval_step=0)
        connection.SimpleQueue("jobs").put("value")
    assert len(jlog.Journal(tmp_path / "broker" / "queues" / "jobs")) == 1


# --- Queues that end with their consumer -------------------------------------------------------------------------


def left(tmp_path: Path) -> set[str]:
    return set(os.listdir(tmp_path / "broker" / "temporary"))


def test_probes_leave_nothing(tmp_path: Path, connect: Callable[[], Connection]) -> None:
    """A worker that is asked for its pulse again and again, by programs that end, keeps no queue and no file of them."""
    mailbox = Mailbox("celery", type="fanout")
    worker = connect()
    mailbox.connection = worker
    node = mailbox.Node("worker", channel=worker.channel(), handlers={"ping": lambda _state: "pong"})
    node.listen()
    open_files, queues = [], []
    for _ in range(50):
        with Connection(f"jlog://{tmp_path}/broker") as connection:
            asking = Mailbox("celery", type="fanout")(connection)
            ticket = uuid()
            asking._publish("ping", {}, reply_ticket=ticket)
            worker.drain_events(timeout=HUNG_SECONDS)
            assert asking._collect(ticket, limit=1, timeout=HUNG_SECONDS) == [{"worker": "pong"}]
        queues.append(len(left(tmp_path)))
        open_files.append(len(os.listdir("/proc/self/fd")))
    assert set(queues) == {1}, "the worker's own queue"
    assert max(open_files) == max(open_files[:5])


def test_a_reply_that_comes_late_creates_no_queue(tmp_path: Path, connect: Callable[[], Connection]) -> None:
    replies = Exchange("replies", durable=False, delivery_mode="transient")
    queue = Queue("asking", replies, "asking", durable=False, auto_delete=True)
    consumer, producer = connect(), connect().Producer()
    for exchange, key in ((replies, "asking"), ("", "asking")):
        with consumer.Consumer([queue], callbacks=[lambda _body, message: message.ack()]):
            producer.publish("reply", exchange=exchange, routing_key=key, delivery_mode="transient")
            consumer.drain_events(timeout=HUNG_SECONDS)
        producer.publish("late", exchange=exchange, routing_key=key, delivery_mode="transient")
        assert left(tmp_path) == set()
        assert not (tmp_path / "broker" / "queues" / "asking").exists()


def test_the_queue_of_a_killed_consumer_ends_when_another_one_is_declared(
    tmp_path: Path, connect: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    news = Exchange("news", "fanout")
    statement = f"""
import os, signal, jlog.celery
from kombu import Connection, Exchange, Queue
connection = Connection("jlog://{tmp_path}/broker")
connection.Consumer([Queue("dead", Exchange("news", "fanout"), auto_delete=True)]).consume()
assert connection.default_channel.basic_get("dead") is None
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", statement], check=False)
    assert left(tmp_path) == {"dead"}
    channel = connect().channel()
    Queue("new", news, auto_delete=True)(channel).declare()
    assert left(tmp_path) == {"dead", "new"}, "it may be consumed in a moment"
    monkeypatch.setattr(temporary, "UNUSED_SECONDS", -1.0)
    Queue("newer", auto_delete=True)(channel).declare()
    assert "dead" not in left(tmp_path)
    connect().Producer().publish("value", exchange=news)
    assert [queue for _, _, queue in channel.get_table("news")] == []
    assert not (tmp_path / "broker" / "queues" / "dead").exists()


def test_an_automatic_queue_lives_while_another_process_consumes(tmp_path: Path, connect: Callable[[], Connection]) -> None:
    one, other = connect(), connect()
    queue = Queue("shared", auto_delete=True)
    first, second = one.Consumer([queue]), other.Consumer([queue])
    first.consume()
    second.consume()
    for connection in (one, other):
        assert connection.default_channel.basic_get("shared") is None
    first.cancel()
    assert left(tmp_path) == {"shared"}
    second.cancel()
    assert left(tmp_path) == set()


# --- In an event loop --------------------------------------------------------------------------------------------


def run(hub: Hub, holds: Callable[[], object]) -> None:
    end = time.monotonic() + HUNG_SECONDS
    while not holds():
        assert time.monotonic() < end
        hub.run_once()


def test_an_event_loop_is_woken_by_messages_and_by_acks_of_other_threads(connect: Callable[[], Connection]) -> None:
    hub, connection, other = Hub(), connect(), connect()
    bodies: list[int] = []
    messages = []

    def on_message(body: int, message: Message) -> None:
        bodies.append(body)
        messages.append(message)

    queue = Queue("jobs")
    with Consumer(connection, [queue], callbacks=[on_message], prefetch_count=1):
        connection.register_with_event_loop(hub)
        producer = other.Producer()
        threading.Timer(0.1, lambda: [producer.publish(number, routing_key="jobs") for number in range(3)]).start()
        for number in range(3):
            run(hub, lambda number=number: len(bodies) > number)
            for _ in range(3):
                hub.call_soon(int)
                hub.run_once()
            assert bodies == list(range(number + 1)), "there is no room for another one"
            threading.Timer(0.1, messages[number].ack).start()
    hub.close()


def test_an_event_loop_that_is_busy_leaves_messages_to_others(connect: Callable[[], Connection]) -> None:
    hub, busy = Hub(), connect()
    messages: list[Message] = []
    one, two = Queue("one"), Queue("two")
    with Consumer(busy, [one, two], on_message=messages.append, prefetch_count=1, no_ack=False):
        busy.register_with_event_loop(hub)
        producer = connect().Producer()
        producer.publish("first", routing_key="one")
        run(hub, lambda: messages)
        producer.publish("second", routing_key="two")
        found = connect().SimpleQueue("two").get(timeout=HUNG_SECONDS)
        assert found.payload == "second"
        found.ack()
        messages[0].ack()
    hub.close()
