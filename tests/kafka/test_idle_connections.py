"""A broker closes connections on which nothing was asked for a while (connections.max.idle.ms, ten minutes by default)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from kafka_broker import Broker

import jlog
from jlog.kafka import Capture, Mirror
from kafka.processes import captured
from kafka.witness import numbered
from patience import wait_until

IDLE_MS = 1000
ESTABLISHED = "01"  # states of a socket, as the kernel writes them
CLOSED_FIRST = ("04", "05", "06")  # FIN_WAIT1, FIN_WAIT2, TIME_WAIT


@pytest.fixture
def broker(tmp_path, _jars):
    with Broker(tmp_path / "broker", settings={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        yield broker


def sockets():
    """Yields the local port, the remote port, the state and the inode of each socket of this machine."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(fields[at].rpartition(":")[2], 16) for at in (1, 2))
            yield local, remote, fields[3], fields[9]


def connections(port):
    """Returns the local ports of this process's connections to this port."""
    held = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            held.add(os.readlink(f"/proc/self/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    return {local for local, remote, state, inode in sockets() if remote == port and state == ESTABLISHED and inode in held}


def closed_by_broker(port):
    """Returns the clients' ports of connections that the broker has closed: the side that closes first keeps the socket for
    a minute."""
    return {remote for local, remote, state, _ in sockets() if local == port and state in CLOSED_FIRST}


def wait_until_closed(port):
    """Waits until the broker has closed connections of this process, and until all those are gone that are there now, except
    one: the capture fetches all the time, so one is never idle."""
    before = connections(port)
    seen = set(before)

    def are_closed():
        seen.update(connections(port))
        return len(before & connections(port)) <= 1 and seen & closed_by_broker(port)

    wait_until(are_closed)


def step_until(flow, records):
    def is_there():
        flow.step(timeout=0.1)
        return flow.stats.records == records

    wait_until(is_there)


@pytest.mark.timeout(300)
def test_a_mirror_and_a_capture_go_on_when_the_broker_has_closed_their_connections(broker, tmp_path):
    url, journal, copy = f"kafka://{broker.address}/idle", tmp_path / "journal", tmp_path / "copy"
    with jlog.Writer(journal) as writer:
        writer.extend(numbered(10))
        mirror = Mirror(journal, url)
        step_until(mirror, 10)
        capture = Capture(url, copy)
        step_until(capture, 10)
        for records in (20, 30):
            wait_until_closed(broker.port)
            writer.extend(numbered(10, records - 10))
            for flow in (mirror, capture):
                step_until(flow, records)
    mirror.close()
    capture.close()
    assert captured(copy) == 30
    assert (mirror.stats.retries, capture.stats.retries) == (0, 0)
