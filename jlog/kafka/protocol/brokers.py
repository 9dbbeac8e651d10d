"""The brokers of a cluster: connections to them, and the leaders of partitions."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from jlog.kafka.protocol.connection import Connection, Lost, Pending
from jlog.kafka.protocol.messages import Leader, Metadata, Place, Request, TopicFound, api_versions, metadata

RECONNECT_SECONDS = 0.1  # from the end of a connection to the next attempt
LOOK_SECONDS = 0.02  # longest wait of a step that waits for a time, and not for a broker
PORT = 9092
LATE = object()  # in place of a result

Address = tuple[str, int]
Result = TypeVar("Result")
Steps = Generator[None, None, Result]  # a call in steps: each `yield` waits for what comes next


def error(code: int, reason: str | None = None, *, retriable: bool = False) -> KafkaException:
    """Returns an error as the Python client makes it. The numbers above 0 are those of the protocol."""
    return KafkaException(KafkaError(code, reason, False, retriable, False))


class Brokers:
    """Connections to brokers, made when they are needed. One thread uses it.

    servers: HOST[:PORT],…
    answer_seconds: how long a broker may take for an answer.
    """

    def __init__(self, servers: str, client_id: str, answer_seconds: float) -> None:
        self._servers = [_address(server) for server in servers.split(",")]
        self._client_id = client_id
        self._answer_seconds = answer_seconds
        self._process = os.getpid()
        self._nodes: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._lost_at: dict[Address, tuple[float, Lost]] = {}
        self.topics: dict[str, TopicFound] = {}

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def pump(self, seconds: float) -> None:
        """Waits up to `seconds` until a broker takes or sends something, and handles it."""
        if os.getpid() != self._process:
            raise ValueError("this client belongs to the process that this one was forked from")
        poll = select.poll()
        by_number = {}
        for connection in self._connections.values():
            if connection.lost is None:
                poll.register(connection, connection.ready())
                by_number[connection.fileno()] = connection
        if not by_number:
            time.sleep(min(seconds, LOOK_SECONDS))
            return
        for number, _ in poll.poll(max(0.0, seconds) * 1000):
            by_number[number].handle()
        for connection in by_number.values():
            connection.check_time()

    def run(self, steps: Steps[Any], seconds: float) -> bool:
        """Goes on with a call in steps until it has ended, for `seconds` at most. Returns whether it has ended."""
        return self.result(steps, seconds) is not LATE

    def result(self, steps: Steps[Any], seconds: float) -> Any:
        """Does the same, and returns the result; LATE where it has not ended."""
        until = time.monotonic() + seconds
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                return ended.value
            left = until - time.monotonic()
            if left <= 0:
                return LATE
            self.pump(min(left, LOOK_SECONDS))

    @staticmethod
    def sleep(seconds: float) -> Steps[None]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield

    @staticmethod
    def answer(pending: Pending) -> Steps[Any]:
        """Waits for an answer, and returns it. Raises Lost where there will be none."""
        while not pending.done:
            yield
        if pending.lost is not None:
            raise pending.lost
        return pending.value

    # --- Brokers ----------------------------------------------------------------------------------------------------

    def at(self, address: Address) -> Connection:
        """Returns the connection to this address, which may still be on its way. Raises Lost where the last attempt has failed
        a moment ago, or the broker does not know what jlog asks."""
        found = self._connections.get(address)
        if found is not None and found.lost is not None:
            self._lost_at[address] = (time.monotonic(), found.lost)
            del self._connections[address]
            found = None
        if found is None:
            lost_at, why = self._lost_at.get(address, (0.0, None))
            if why is not None and time.monotonic() < lost_at + RECONNECT_SECONDS:
                raise why
            self._lost_at.pop(address, None)
            try:
                found = Connection(*address, self._client_id, self._answer_seconds)
            except Lost as lost:
                self._lost_at[address] = (time.monotonic(), lost)
                raise
            self._connections[address] = found
        return found

    def node(self, number: int) -> Connection:
        """Returns the connection to the broker with this number. Raises Lost where no broker has told its address."""
        if number not in self._nodes:
            raise Lost(f"broker {number}: not known to the others")
        return self.at(self._nodes[number])

    def are_new_enough(self) -> Steps[bool]:
        """Returns whether the first broker that answers knows all requests that jlog makes. Raises Lost where none answers."""
        yield from self.ask_any(api_versions())
        return any(one.knows() for one in self._connections.values())

    def ask_any(self, request: Request) -> Steps[Any]:
        """Asks one broker after the other, first those that are connected, and returns the answer. Raises Lost where none
        answers."""
        why = Lost("no broker")
        connected = [address for address, one in self._connections.items() if one.lost is None and one.is_ready]
        for address in dict.fromkeys([*connected, *self._nodes.values(), *self._servers]):
            try:
                return (yield from self.answer(self.at(address).ask(request)))
            except Lost as lost:
                why = lost
        raise why

    # --- What they lead ---------------------------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str]) -> Steps[None]:
        """Asks which partitions the topics have, and which brokers lead these. Raises Lost."""
        found: Metadata = yield from self.ask_any(metadata({*topics, *self.topics}))
        self._nodes.update(found.brokers)
        self.topics.update(found.topics)

    def leader(self, place: Place) -> Leader | None:
        """Returns the leader of a partition as the last refresh() has found it; None where it has none."""
        topic, partition = place
        found = self.topics.get(topic)
        leader = None if found is None else found.leaders.get(partition)
        return None if leader is None or leader.node < 0 else leader

    def close(self) -> None:
        for connection in self._connections.values():
            with suppress(OSError):
                connection.close()
        self._connections.clear()


def _address(server: str) -> Address:
    host, colon, port = server.rpartition(":")
    if not colon or host.endswith(":") or server.endswith("]"):
        return server.strip("[]"), PORT
    return host.strip("[]"), int(port)
