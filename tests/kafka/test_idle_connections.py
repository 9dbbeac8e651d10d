"""A broker closes connections on which nothing was asked for a while (connections.max.idle.ms, ten minutes by default)."""

from __future__ import annotations

import os

import pytest
from kafka_broker import Broker

import jlog
from jlog.kafka import Capture, Mirror
from kafka.processes import captured
from kafka.witness import numbered, wait_until

IDLE_MS = 1000


@pytest.fixture
def broker(tmp_path, _jars):
    with Broker(tmp_path / "broker", settings={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        yield broker


def connections(port):
    """Returns how many connections to this port the process has."""
    inodes = set()
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if int(fields[2].rpartition(":")[2], 16) == port and fields[3] == "01":  # established
                inodes.add(fields[9])
    held = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            held += os.readlink(f"/proc/self/fd/{name}").removeprefix("socket:[").removesuffix("]") in inodes
        except FileNotFoundError:
            continue
    return held


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
            wait_until(lambda: connections(broker.port) == 0)
            writer.extend(numbered(10, records - 10))
            for flow in (mirror, capture):
                step_until(flow, records)
    mirror.close()
    capture.close()
    assert captured(copy) == 30
    assert (mirror.stats.retries, capture.stats.retries) == (0, 0)
