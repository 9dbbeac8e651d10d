"""A transport of kombu whose queues are journals: what Celery asks of a broker."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str, str_to_bytes
from kombu.utils.json import dumps, loads

import jlog
from jlog.celery.queues import Binding, Bindings, Queues
from jlog.celery.watching import Bell

try:
    from celery import signals
except ImportError:  # kombu alone
    signals = None

TASK_HEADER = "task"  # a message of Celery has it: begin_accepted() says when that is in work
TRANSIENT = 1  # the delivery mode of a message that may be lost


class QoS(virtual.QoS):
    """The messages that a channel has delivered. One that is not acknowledged is given back as it lies in its journal, and not
    put there once more."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.finish(delivery_tag)
        super().ack(delivery_tag)
        self.channel.ring()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if requeue:
            self.channel.fail(delivery_tag)
        else:
            self.channel.finish(delivery_tag)
        self._quick_ack(delivery_tag)
        self.channel.ring()


class Channel(virtual.Channel):
    """A channel, with the queues that it has open."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **arguments: Any) -> None:
        directory = _directory_of(connection.client)
        super().__init__(connection, **arguments)
        options = connection.client.transport_options
        self._queues = Queues(directory, writer=options.get("journal", {}), worker=options.get("worker", {}))
        self._bindings = Bindings(directory / "exchanges", self._queues.exists)
        self._tasks: dict[str, jlog.Task] = {}
        self._not_acknowledged: set[str] = set()  # queues whose messages are done once they are delivered
        self._lock = threading.Lock()

    # --- Queues ----------------------------------------------------------------------------------------------------

    def _new_queue(
        self, queue: str, *, auto_delete: bool = False, exclusive: bool = False, durable: bool = True, **_: Any
    ) -> None:
        self._queues.declare(queue, temporary=auto_delete or exclusive, durable=durable)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self._queues.exists(queue)

    def _size(self, queue: str) -> int:
        return self._queues.size(queue)

    def _purge(self, queue: str) -> int:
        return self._queues.purge(queue)

    def _delete(self, queue: str, exchange: str, *binding: str | None, **_: Any) -> None:  # noqa: ARG002 - kombu gives it
        key, pattern, bound = binding[:3]
        self._bindings.remove(exchange, (key or "", pattern or "", bound or ""))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **arguments: Any) -> None:
        if if_empty and self._size(queue):
            return
        super().queue_delete(queue, if_unused, if_empty, **arguments)
        self._queues.delete(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is None or queue in self._active_queues:
            return
        if self._queues.is_temporary(queue):
            self.queue_delete(queue)
        else:
            self._queues.pause(queue)

    # --- Exchanges -------------------------------------------------------------------------------------------------

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **options: Any) -> None:  # noqa: A002
        super().exchange_declare(exchange, type, **options)
        if exchange and not options.get("passive"):
            self._bindings.set_type(exchange, type or "direct")

    def typeof(self, exchange: str, default: str = "direct") -> Any:
        """Returns the type that any process has declared the exchange with."""
        if exchange and exchange not in self.state.exchanges:  # a file is read only where it tells more
            default = self._bindings.type_of(exchange) or default
        return super().typeof(exchange, default)

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        is_temporary = self._queues.is_temporary(queue or "")
        self._bindings.add(exchange, (routing_key or "", pattern or "", queue or ""), temporary=is_temporary)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **others: Any
    ) -> None:
        super().queue_unbind(queue, exchange, routing_key, arguments, **others)
        key, pattern, bound = self.typeof(exchange or "").prepare_bind(queue, exchange, routing_key, arguments)
        self._bindings.remove(exchange or "", (key or "", pattern or "", bound or ""))

    def get_table(self, exchange: str) -> list[Binding]:
        return self._bindings.table(exchange)

    def _put_fanout(self, exchange: str, message: dict[str, Any], *_: Any, **_options: Any) -> None:
        for _key, _pattern, queue in self.get_table(exchange):
            if self._queues.exists(queue):  # else it was deleted
                self._put(queue, message)

    # --- Messages --------------------------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        properties = message["properties"]
        # A reply that comes late creates no queue: nobody would ever consume from it.
        creates = properties.get("delivery_mode") != TRANSIENT
        # Replies go to many queues, once to each; commands and events to the same ones again and again.
        keeps_open = self.typeof(properties["delivery_info"].get("exchange") or "").type != "direct"
        self._queues.put(queue, str_to_bytes(dumps(message)), creates=creates, keeps_open=keeps_open)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:  # noqa: ARG002 - kombu gives it
        while True:
            task = self._queues.take(queue)
            if task is None:
                raise Empty
            message = _message(task)
            if message is None:
                task.reject("not a message of kombu")
                continue
            if _has_expired(task, message):
                task.ack()
                continue
            if queue in self._not_acknowledged:
                task.ack()
                return message
            if TASK_HEADER not in message["headers"]:
                task.begin()  # the consumer works on it from now on
            tag = self._next_delivery_tag()  # a fresh tag: the message of a fanout has one tag in all queues
            message["properties"]["delivery_tag"] = tag
            message["properties"]["delivery_info"]["redelivered"] = task.attempt > 1
            with self._lock:
                self._tasks[tag] = task
            return message

    def basic_consume(self, queue: str, no_ack: bool, *arguments: Any, **others: Any) -> Any:
        if no_ack:
            self._not_acknowledged.add(queue)
        result = super().basic_consume(queue, no_ack, *arguments, **others)
        self.ring()
        return result

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.ring()

    def basic_get(self, queue: str, no_ack: bool = False, **arguments: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **arguments)
        if message is not None and no_ack:
            self.finish(message.delivery_tag)
        return message

    def begin(self, delivery_tag: str) -> None:
        """Notes that the message is in work: if this process dies, that is a failure of it."""
        task = self._tasks.get(delivery_tag)
        if task is not None:
            task.begin()

    def finish(self, delivery_tag: str) -> None:
        task = self._task(delivery_tag)
        if task is not None:
            task.ack()

    def fail(self, delivery_tag: str) -> None:
        """Gives the message back as one that its consumer has not managed, which counts for `max_attempts`. It comes again at
        once, and from the second time on after the backoff."""
        task = self._task(delivery_tag)
        if task is not None:
            task.nack(delay=None if task.failures else 0.0, reason="rejected with requeue")

    def give_back(self, delivery_tag: str) -> None:
        task = self._task(delivery_tag)
        if task is not None:
            task.release()

    def _restore(self, message: Any) -> None:
        self.give_back(message.delivery_tag)

    def _task(self, delivery_tag: str) -> jlog.Task | None:
        with self._lock:
            return self._tasks.pop(delivery_tag, None)

    # --- Event loop ------------------------------------------------------------------------------------------------

    def deliver(self, callback: Any, ring: Any) -> bool:
        """Delivers a message if there is one, and the consumer has room for it. Otherwise, rings once that has changed."""
        with suppress(Empty):
            self.drain_events(callback=callback)
            return True
        if self._consumers and self.qos.can_consume():
            for queue in self._active_queues:
                self._queues.watch(queue, ring)
        else:
            self._queues.pause()
        return False

    def ring(self) -> None:
        """Lets the event loop look again: there may be room for a message now. Any thread may call it."""
        transport = self.connection
        if transport is not None:
            transport.ring()

    def close(self) -> None:
        was_closed = self.closed
        super().close()
        if not was_closed:
            self._queues.close()


class Transport(virtual.Transport):
    """The transport of `jlog:///var/lib/app`, where that directory holds the queues."""

    Channel = Channel
    driver_type = "jlog"
    driver_name = "jlog"
    can_parse_url = False
    polling_interval: float = 0.05  # seconds between two looks at queues without a message, where no event loop waits for them
    connection_errors: tuple[type[Exception], ...] = (*virtual.Transport.connection_errors, OSError)
    channel_errors: tuple[type[Exception], ...] = (*virtual.Transport.channel_errors, jlog.JournalError)
    implements: Any = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **arguments: Any) -> None:
        super().__init__(client, **arguments)
        self._bell: Bell | None = None
        self._loop: Any = None

    def driver_version(self) -> str:
        return jlog.__version__

    def ring(self) -> None:
        """Lets the event loop look for messages, if there is a loop. Any thread may call it."""
        if self._bell is not None:
            self._bell.ring()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:  # noqa: ARG002 - kombu gives it
        if self._bell is None:
            self._bell, self._loop = Bell(), loop
        loop.add_reader(self._bell, self._deliver_next)
        self.ring()

    def _deliver_next(self) -> None:
        """Delivers one message of each channel, so that the loop has its turn before the next one."""
        bell = self._bell
        if bell is None:
            return
        bell.clear()
        for channel in list(self.channels):
            if channel.deliver(self._deliver, bell.ring):
                bell.ring()

    def close_connection(self, connection: Any) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            self._loop.remove_reader(bell)
        super().close_connection(connection)
        if bell is not None:
            bell.close()


def _message(task: jlog.Task) -> dict[str, Any] | None:
    """Returns the message; None for a record that something else has appended."""
    try:
        message: dict[str, Any] = loads(bytes_to_str(task.value))
        return message if {"headers", "properties"} <= message.keys() else None
    except (ValueError, TypeError, AttributeError):
        return None


def _has_expired(task: jlog.Task, message: dict[str, Any]) -> bool:
    """Tells whether the message has waited longer than its publisher has allowed, in milliseconds."""
    expiration = message["properties"].get("expiration")
    return bool(expiration) and time.time() * 1e3 > task.timestamp_us / 1e3 + float(expiration)


def _directory_of(client: Any) -> Path:
    """Returns the directory that the URL names. kombu takes the path of a URL for a virtual host, without its first slash. Its
    errors are those of a connection: kombu goes on to the next URL of a list."""
    if client.hostname not in (None, "", "localhost"):
        raise ConnectionError(f"jlog://{client.hostname}/… has a host; a journal has none: write jlog:///var/lib/app")
    path = client.virtual_host or ""
    if path in ("", "/"):
        raise ConnectionError("jlog:// has no directory; write jlog:///var/lib/app")
    directory = Path("/" + path.lstrip("/"))
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "this user may not write to the broker's directory", str(directory))
    return directory


def begin_accepted(channel_type: type) -> None:
    """From now on a message that came by a channel of this type is in work from the moment at which a process or thread of
    Celery's pool accepts its task: not while the task waits for its ETA, or for a process that is free."""

    def on_received(request: Any, **_: Any) -> None:
        message, accepted = request.message, request.on_accepted

        def on_accepted(pid: int, time_accepted: float) -> None:
            message.channel.begin(message.delivery_tag)
            accepted(pid, time_accepted)

        if isinstance(message.channel, channel_type):
            request.on_accepted = on_accepted

    if signals is not None:
        signals.task_received.connect(on_received, weak=False)


begin_accepted(Channel)
