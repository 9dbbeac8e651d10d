"""A connection to one broker, which answers requests in their order."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from jlog.kafka.protocol.messages import NO_TAGS, TAGGED, VERSIONS, Answer, Request, api_versions, text

PIECES_AT_ONCE = 64  # of one call that sends; the system's limit is 1024
ANSWER_BYTES_MAX = 1 << 30


class Lost(Exception):
    """The connection has ended, or could not be made: the text says why."""


class Pending:
    """An answer that is awaited. Once it is `done`, `value` is there, or `lost` says why there will be none."""

    __slots__ = ("_read", "_told", "asked_at", "lost", "value")

    def __init__(self, read: Callable[[Answer], Any], told: Callable[[Pending], None] | None) -> None:
        self._read = read
        self._told = told
        self.asked_at = time.monotonic()
        self.value: Any = None
        self.lost: Lost | None = None

    @property
    def done(self) -> bool:
        return self.lost is not None or self.value is not None

    def answer(self, data: memoryview) -> None:
        self.value = self._read(Answer(data))
        self._tell()

    def lose(self, why: Lost) -> None:
        if not self.done:
            self.lost = why
            self._tell()

    def _tell(self) -> None:
        if self._told is not None:
            self._told(self)


class Connection:
    """One connection. It never waits: ready() says for what, and handle() goes on when it is there. An error ends it: all
    answers that are awaited are Lost, and `lost` is set.

    answer_seconds: how long a broker may take for an answer.
    Raises Lost where the address cannot be resolved.
    """

    def __init__(self, host: str, port: int, client_id: str, answer_seconds: float) -> None:
        self.lost: Lost | None = None
        self._where = f"{host}:{port}"
        self._client_id = text(client_id)
        self._answer_seconds = answer_seconds
        self._connected = False
        self._number = 0
        self._heard_at = 0.0  # when the last bytes came
        self._outgoing: deque[memoryview] = deque()
        self._pending: deque[tuple[int, Pending]] = deque()
        self._head = bytearray(4)
        self._into = memoryview(self._head)  # where the next bytes go: the size of an answer, or the answer
        self._filled = 0
        self._in_answer = False
        try:
            self._addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Lost(f"{self._where}: {error.strerror or error}") from None
        self._connect()
        self._hello = self.ask(api_versions())

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_ready(self) -> bool:
        """Whether the broker has told which requests it knows."""
        return self._hello.value is not None

    def knows(self) -> bool:
        """Whether the broker knows all requests in the versions that jlog makes."""
        known = self._hello.value or {}
        return all(known.get(api, (0, -1))[0] <= version <= known.get(api, (0, -1))[1] for api, version in VERSIONS.items())

    def ask(self, request: Request, told: Callable[[Pending], None] | None = None) -> Pending:
        """Sends a request. told: is called with what has become of it."""
        pending = Pending(request.read, told)
        if self.lost is not None:
            pending.lose(self.lost)
            return pending
        self._number = (self._number + 1) & 0x7FFFFFFF
        head = struct.pack(">hhi", request.api, VERSIONS[request.api], self._number) + self._client_id
        head += NO_TAGS if request.api in TAGGED else b""
        size = len(head) + sum(map(len, request.pieces))
        self._outgoing.append(memoryview(struct.pack(">i", size) + head))
        self._outgoing.extend(memoryview(piece).cast("B") for piece in request.pieces if len(piece))
        self._pending.append((self._number, pending))
        if self._connected:
            self._send()
        return pending

    def ready(self) -> int:
        """Returns the events that handle() waits for, as select.poll takes them."""
        return select.POLLIN | (select.POLLOUT if self._outgoing or not self._connected else 0)

    def handle(self) -> None:
        """Sends and receives as much as is possible without waiting."""
        if not self._connected:
            self._finish_connecting()
        if self._connected and self.lost is None:
            self._send()
        if self._connected and self.lost is None:
            self._receive()

    def check_time(self) -> None:
        """Ends the connection where the broker takes too long. An answer that is on its way may have waited for this side."""
        since = max(self._pending[0][1].asked_at, self._heard_at) if self._pending else None
        if since is not None and time.monotonic() - since > self._answer_seconds:
            self.close(Lost(f"{self._where}: no answer within {self._answer_seconds:.0f} s"))

    def close(self, why: Lost | None = None) -> None:
        if self.lost is not None:
            return
        self.lost = why or Lost(f"{self._where}: closed")
        self._socket.close()
        self._outgoing.clear()
        pending, self._pending = self._pending, deque()
        for _, one in pending:
            one.lose(self.lost)

    def _connect(self) -> None:
        """Begins to connect to the next address of the broker."""
        family, kind, protocol, _, address = self._addresses.pop(0)
        self._socket = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        code = self._socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._not_connected(code)

    def _finish_connecting(self) -> None:
        if not select.select((), (self._socket,), (), 0)[1]:
            return
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._not_connected(code)
        else:
            self._connected = True

    def _not_connected(self, code: int) -> None:
        if self._addresses:
            self._socket.close()
            self._connect()
        else:
            self.close(Lost(f"{self._where}: {os.strerror(code)}"))

    def _send(self) -> None:
        try:
            while self._outgoing:
                pieces = [self._outgoing[index] for index in range(min(PIECES_AT_ONCE, len(self._outgoing)))]
                sent = self._socket.sendmsg(pieces)
                while self._outgoing and sent >= len(self._outgoing[0]):
                    sent -= len(self._outgoing.popleft())
                if sent:
                    self._outgoing[0] = self._outgoing[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._broken(error)

    def _receive(self) -> None:
        try:
            while self._pending:
                count = self._socket.recv_into(self._into[self._filled :])
                if count == 0:
                    self.close(Lost(f"{self._where}: the broker has closed the connection"))
                    return
                self._heard_at = time.monotonic()
                self._filled += count
                if self._filled == len(self._into):
                    self._next_part()
            if not self._pending and self.lost is None and self._socket.recv(1, socket.MSG_PEEK) == b"":
                self.close(Lost(f"{self._where}: the broker has closed the connection"))
        except BlockingIOError:
            pass
        except OSError as error:
            self._broken(error)

    def _next_part(self) -> None:
        """Goes on behind the size of an answer, or behind the answer."""
        data, self._filled = self._into, 0
        if not self._in_answer:
            (size,) = struct.unpack(">i", data)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                self.close(Lost(f"{self._where}: this is no answer of a Kafka broker"))
                return
            self._into, self._in_answer = memoryview(bytearray(size)), True
            return
        self._into, self._in_answer = memoryview(self._head), False
        number, pending = self._pending.popleft()
        try:
            if struct.unpack_from(">i", data) != (number,):
                raise struct.error("another request is answered")
            pending.answer(data[4:])
        except struct.error as error:
            why = Lost(f"{self._where}: an answer that cannot be read ({error})")
            pending.lose(why)
            self.close(why)

    def _broken(self, error: OSError) -> None:
        self.close(Lost(f"{self._where}: {error.strerror or error}"))
