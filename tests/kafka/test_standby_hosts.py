"""Two hosts, each in namespaces of its own: one has the journal, the other its standby. The first loses its power."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jlog
from jlog.kafka import positions
from kafka.processes import captured
from kafka.test_standby import records
from patience import HUNG_SECONDS, wait_until
from spark.clusters import skip_without_namespaces

APPEND = """
import itertools, sys, time, jlog
with jlog.Writer(sys.argv[1], retention=jlog.Retention(delete_read=False)) as writer:
    for number in itertools.count():
        writer.extend([b"%d" % n for n in range(100 * number, 100 * number + 100)])
        time.sleep(0.002)
"""


class Host:
    """Has a name, processes and a file system of its own: `place` is another directory on each host."""

    def __init__(self, name: str, place: Path) -> None:
        self.name = name
        self.place = place
        self.directory = place.with_name(f"{place.name}-{name}")
        self.directory.mkdir()
        self._running: list[subprocess.Popen[bytes]] = []

    def _command(self, script: str) -> list[str]:
        inside = f"hostname {self.name} && mount --bind {shlex.quote(str(self.directory))} {shlex.quote(str(self.place))}"
        # All processes of the host die with the first one.
        unshare = ["unshare", "-m", "-u", "-p", "-f", "--kill-child", "--mount-proc"]
        return [*unshare, "sh", "-c", f"{inside} && {script}"]

    def start(self, script: str) -> None:
        self._running.append(subprocess.Popen(self._command(script), stderr=subprocess.PIPE))

    def run(self, script: str) -> tuple[int, str, str]:
        done = subprocess.run(self._command(script), capture_output=True, text=True, timeout=HUNG_SECONDS)
        return done.returncode, done.stdout, done.stderr

    def lose_power(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()
        self._running.clear()


@pytest.fixture
def hosts(tmp_path):
    skip_without_namespaces()
    place = tmp_path / "journals"
    place.mkdir()
    started = [Host(name, place) for name in ("first", "second")]
    yield started
    for host in started:
        host.lose_power()


def test_the_standby_of_a_dead_host_takes_over(hosts, url, topic, witness):
    first, second = hosts
    journal = f"{first.place}/orders"
    tool = f"{sys.executable} -m jlog.cli"
    witness.make(topic, partitions=2)
    jlog.Journal.create(first.directory / "orders", retention=jlog.Retention(delete_read=False))
    jlog.Journal(first.directory / "orders").add_subscriber("billing")
    append = f"{sys.executable} -c {shlex.quote(APPEND)} {journal}"
    first.start(f"{{ {tool} mirror to-kafka --standby --rate 20000 {journal} {url} & }} && exec {append}")
    wait_until(lambda: positions(first.directory / "orders", url))
    second.start(f"exec {tool} mirror standby {url} {journal}")
    kept = second.directory / "orders"
    wait_until(lambda: captured(kept) > 20_000)
    first.lose_power()
    second.lose_power()
    code, out, said = second.run(f"exec {tool} mirror promote --json {url} {journal}")
    assert code == 0, said
    found = json.loads(out)
    before = records(first.directory / "orders")
    assert found["sequence"] > 20_000
    assert records(kept) == before[: found["sequence"]]
    assert 0 < found["not_mirrored"] <= len(before) - found["sequence"]
    assert list(jlog.Journal(kept).subscribers()) == ["billing", f"kafka:{topic}"]
    code, _, said = first.run(f"exec {tool} mirror to-kafka --standby --until-end {journal} {url}")
    assert code == 1
    assert "on second has taken over" in said
    with jlog.Writer(kept) as writer:
        assert writer.append(b"goes on") == found["sequence"]
    code, _, said = second.run(f"exec {tool} mirror to-kafka --standby --until-end {journal} {url}")
    assert (code, said) == (0, "")
    assert len(witness.fields(topic)) == found["sequence"] + 1
