"""A transport of kombu whose queues are journals: what Celery asks of a broker."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str, str_to_bytes
from kombu.utils.json import dumps, loads

import jlog
from jlog.celery.bindings import Binding, Bindings
from jlog.celery.queues import Queues


class QoS(virtual.QoS):
    """The messages that a channel has delivered. One that is not acknowledged is given back as it lies in its journal, and not
    put there once more."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.finish(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if requeue:
            self.channel.give_back(delivery_tag)
        else:
            self.channel.finish(delivery_tag)
        self._quick_ack(delivery_tag)


class Channel(virtual.Channel):
    """A channel, with the queues that it has open."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **arguments: Any) -> None:
        super().__init__(connection, **arguments)
        options = connection.client.transport_options
        directory = _directory_of(connection.client)
        self._bindings = Bindings(directory / "exchanges")
        self._queues = Queues(directory / "queues", writer=options.get("journal", {}), worker=options.get("worker", {}))
        self._tasks: dict[str, jlog.Task] = {}
        self._not_acknowledged: set[str] = set()  # queues whose messages are done once they are delivered
        self._temporary: set[str] = set()
        self._lock = threading.Lock()

    # --- Queues ----------------------------------------------------------------------------------------------------

    def _new_queue(self, queue: str, *, auto_delete: bool = False, **_: Any) -> None:
        if auto_delete:
            self._temporary.add(queue)
        self._queues.declare(queue, temporary=auto_delete)

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
        if queue in self._temporary and queue not in self._active_queues:
            self._temporary.discard(queue)
            self.queue_delete(queue)

    # --- Exchanges -------------------------------------------------------------------------------------------------

    def exchange_declare(self, exchange: str | None = None, type: str = "direct", **options: Any) -> None:  # noqa: A002
        super().exchange_declare(exchange, type, **options)
        if exchange and not options.get("passive"):
            self._bindings.set_type(exchange, type or "direct")

    def typeof(self, exchange: str, default: str = "direct") -> Any:
        """Returns the type that any process has declared the exchange with."""
        return super().typeof(exchange, self._bindings.type_of(exchange) or default)

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        self._bindings.add(exchange, (routing_key or "", pattern or "", queue or ""))

    def get_table(self, exchange: str) -> list[Binding]:
        return self._bindings.table(exchange)

    def _put_fanout(self, exchange: str, message: dict[str, Any], *_: Any, **_options: Any) -> None:
        for _key, _pattern, queue in self.get_table(exchange):
            if self._queues.exists(queue):  # else its process was killed, or has deleted it
                self._put(queue, message)

    # --- Messages --------------------------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        self._queues.put(queue, str_to_bytes(dumps(message)))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:  # noqa: ARG002 - kombu gives it
        task = self._queues.take(queue)
        if task is None:
            raise Empty
        message: dict[str, Any] = loads(bytes_to_str(task.value))
        if queue in self._not_acknowledged:
            task.ack()
            return message
        tag = self._next_delivery_tag()  # the message of a fanout has the same one in each queue
        message["properties"]["delivery_tag"] = tag
        message["properties"]["delivery_info"]["redelivered"] = task.attempt > 1
        with self._lock:
            self._tasks[tag] = task
        return message

    def basic_consume(self, queue: str, no_ack: bool, *arguments: Any, **others: Any) -> Any:
        if no_ack:
            self._not_acknowledged.add(queue)
        return super().basic_consume(queue, no_ack, *arguments, **others)

    def basic_get(self, queue: str, no_ack: bool = False, **arguments: Any) -> Any:
        message = super().basic_get(queue, no_ack=no_ack, **arguments)
        if message is not None and no_ack:
            self.finish(message.delivery_tag)
        return message

    def finish(self, delivery_tag: str) -> None:
        task = self._task(delivery_tag)
        if task is not None:
            task.ack()

    def give_back(self, delivery_tag: str) -> None:
        task = self._task(delivery_tag)
        if task is not None:
            task.release()

    def _restore(self, message: Any) -> None:
        self.give_back(message.delivery_tag)

    def _task(self, delivery_tag: str) -> jlog.Task | None:
        with self._lock:
            return self._tasks.pop(delivery_tag, None)

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
    polling_interval = 0.05  # seconds between two looks at queues without a message
    connection_errors = virtual.Transport.connection_errors
    channel_errors = (*virtual.Transport.channel_errors, jlog.JournalError, OSError)
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def driver_version(self) -> str:
        return jlog.__version__


def _directory_of(client: Any) -> Path:
    """Returns the directory that the URL names. kombu takes the path of a URL for a virtual host, without its first slash."""
    if client.hostname not in (None, "", "localhost"):
        raise ValueError(f"jlog://{client.hostname}/… has a host; a journal has none: write jlog:///var/lib/app")
    path = client.virtual_host or ""
    if path in ("", "/"):
        raise ValueError("jlog:// has no directory; write jlog:///var/lib/app")
    return Path("/" + path.lstrip("/"))
