"""The events of one life: what is done to brokers, topics, rights and flows, in an order that a seed decides."""

from __future__ import annotations

import heapq
import itertools
import re
import subprocess
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AclOperation

import jlog
from jlog.kafka import positions
from kafka_torture.flows import DELETED, HUNG_SECONDS, LOST, REMADE, RIGHTS, TOOL, Flow
from kafka_torture.judge import check_capture, check_mirror
from kafka_torture.records import Wrong
from kafka_torture.traffic import Appender, Committer, Program, Sender

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafka_torture.cluster import Cluster

FUNCTION = "import jlog\ndef marked(record):\n    return jlog.NewRecord.like(record, value=record.value + b'!')\n"
GONE = "no topic is there|[Uu]nknown topic"  # other words for DELETED
PARTITIONS_MAX = 8
EVENTS = {
    "kill_broker": 4,
    "pause_broker": 3,
    "stop_broker": 2,
    "kill_flow": 5,
    "stop_flow": 3,
    "pause_flow": 3,
    "take_over": 4,
    "remake_topic": 3,
    "add_partitions": 3,
    "take_right": 2,
    "run_ahead": 2,
}


class Life:
    """Topics m0 and m1 are mirrored to, s0 to s2 are sent to, r0 is cut by retention, t0 gets transactions. s1, s2 and the
    mirrored ones are deleted and made anew."""

    def __init__(self, cluster: Cluster, directory: Path, seed: str) -> None:
        self.chance = Random(f"plan {seed}")
        self.cluster = cluster
        self.directory = directory
        directory.mkdir(parents=True)
        (directory / "torture_functions.py").write_text(FUNCTION)
        self.prefix = directory.name
        self.partitions = {self.topic(name): 3 for name in ("m0", "m1", "s0", "s1", "s2", "r0", "t0")}
        self.made = dict.fromkeys(self.partitions, 0)  # how often
        self.counts = dict.fromkeys(EVENTS, 0)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        for topic, partitions in self.partitions.items():
            cluster.make(topic, partitions)
            self.made[topic] += 1
        self.gone: set[str] = set()
        self.appenders = [Appender(f"{seed} {name}", self.journal(name)) for name in ("j0", "j1")]
        self.sender = Sender(f"{seed} s", cluster.servers, [self.topic(name) for name in ("s0", "s1", "s2", "r0")])
        self.committer = Committer(f"{seed} t", cluster.servers, self.topic("t0"))
        self.programs: list[Program] = [*self.appenders, self.sender, self.committer]
        self._make_flows()

    def topic(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def journal(self, name: str) -> Path:
        return self.directory / name

    def _make_flows(self) -> None:
        url, path = self.cluster.url, lambda name: str(self.journal(name))
        captured = {
            "m": url(self.topic("m*")),
            "s": url(self.topic("s*")),
            "r": url(f"{self.topic('r0')},{self.topic('t0')}"),
        }
        self.owner = 0
        self.skips = False
        self.mirrors: dict[int, float] = {}  # processes, and when they were started
        self.mirror = self._mirror()
        to_m1 = ["transform", path("j1"), url(self.topic("m1")), "--transform", "torture_functions:marked"]
        self.transform = Flow("transform", self.directory, self.cluster, to_m1)
        self.captures = {
            name: Flow(
                f"capture-{name}", self.directory, self.cluster, ["mirror", "from-kafka", captured[name], path(f"copy-{name}")]
            )
            for name in captured
        }
        self.captures["r"].options = lambda: ["--skip-missing"] * self.skips
        self.leaving: Flow | None = None  # a mirror that another one replaces
        self._ends: dict[Flow, tuple[str, str]] = {
            self.transform: (path("j1"), url(self.topic("m1"))),
            **{self.captures[name]: (captured[name], path(f"copy-{name}")) for name in captured},
        }
        self._to_set: dict[Flow, set[str]] = {}

    def _mirror(self) -> Flow:
        command = ["mirror", "to-kafka", str(self.journal("j0")), self.cluster.url(self.topic("m0"))]
        command += ["--subscriber", f"owner-{self.owner}"]
        made = Flow(f"mirror-{self.owner}", self.directory, self.cluster, command, rivals=self.mirrors)
        self.owner += 1
        return made

    @property
    def flows(self) -> list[Flow]:
        return [self.mirror, self.transform, *self.captures.values()]

    # --- Running ----------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Raises Wrong for a promise that does not hold."""
        until = time.monotonic() + seconds
        try:
            for program in self.programs:
                program.start()
            for flow in self.flows:
                flow.start()
            next_at = time.monotonic() + 5.0
            while time.monotonic() < until:
                self._turn()
                if time.monotonic() > next_at:
                    self._begin_event()
                    next_at = time.monotonic() + self.chance.uniform(0.3, 3.0)
                time.sleep(0.1)
            self._settle()
            self._judge()
        finally:
            for flow in [*self.flows, *filter(None, [self.leaving])]:
                flow.kill()

    def _turn(self) -> None:
        self.cluster.look()
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        for flow in self.flows:
            if not flow.is_running and time.monotonic() > flow.not_before:
                self._start_again(flow)
        if self.leaving is not None and not self.leaving.is_running:
            self._say_goodbye(self.leaving)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), action))

    def _start_again(self, flow: Flow, *more: str) -> None:
        """Starts a flow that has ended or was killed, as docs/kafka-failures.md says."""
        if flow.has_ended and flow.wait() != 0:
            self._react(flow)
        if self._set_positions(flow):
            flow.start(*more)
        else:
            flow.not_before = time.monotonic() + 1.0

    def _react(self, flow: Flow) -> None:
        flow.not_before = time.monotonic() + 0.5
        found = re.search(DELETED, flow.last_end)
        if found:
            self._to_set.setdefault(flow, set()).add(found[1])
        elif re.search(GONE, flow.last_end) and DELETED in flow.may_end and flow not in self.captures.values():
            self._to_set.setdefault(flow, set()).add(flow.command[-1])
        elif re.search(LOST, flow.last_end):
            self.skips = True

    def _set_positions(self, flow: Flow) -> bool:
        """Sets the positions of topics that were made again. Returns False where that has to wait."""
        wanted = self._to_set.get(flow, set())
        for topic in sorted(wanted):
            if topic in self.gone:
                return False
            if flow in self.captures.values():
                source, sink = self._ends[flow]
                arguments = [source, sink, topic, "begin"]
            else:
                journal, name = ("j0", "m0") if flow is self.mirror else ("j1", "m1")
                arguments = [str(self.journal(journal)), self.cluster.url(self.topic(name)), "begin"]
            command = [*TOOL, "mirror", "positions", "set", *arguments]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as setting:
                if flow is self.mirror:  # it takes over from a mirror that has not ended yet
                    self.mirrors[setting.pid] = time.monotonic()
                said = setting.communicate(timeout=HUNG_SECONDS)[1]
            if "Traceback" in said:
                raise Wrong(f"setting the position of {topic}: {said}")
            if setting.returncode:
                return False  # the cluster has no time for it: once more, later
            wanted.remove(topic)
        return True

    def _say_goodbye(self, leaving: Flow) -> None:
        """Handles the end of a mirror that another one replaces. It may also have ended for another good reason."""
        if leaving.has_ended:
            leaving.wait()
        self.leaving = None

    def _settle(self) -> None:
        """Lets everything be moved."""
        while self._due:
            heapq.heappop(self._due)[2]()
        self.cluster.heal()
        for program in self.programs:
            program.stop()
        for flow in self.flows:
            flow.stop()
        for flow in self.flows:
            until = time.monotonic() + HUNG_SECONDS
            while True:
                if time.monotonic() > until:
                    raise Wrong(f"{flow.name} does not come to its end: {flow.last_end}")
                self._start_again(flow, "--until-end")
                if not flow.has_ended and not flow.is_running:
                    time.sleep(1.0)
                elif flow.wait() == 0:
                    break
                else:
                    self._react(flow)
                    time.sleep(0.5)
        if self.leaving is not None:
            self.leaving.resume()
            if self.leaving.has_ended or self.leaving.is_running:
                self.leaving.wait()
            self.leaving = None

    def _judge(self) -> None:
        witness = self.cluster.witness
        check_mirror(witness, self.topic("m0"), self.journal("j0"), self.appenders[0].count, b"")
        check_mirror(witness, self.topic("m1"), self.journal("j1"), self.appenders[1].count, b"!")
        for name, flow in self.captures.items():
            topics = {topic: made for topic, made in self.made.items() if topic.startswith(self.topic(name))}
            if name == "r":
                topics[self.topic("t0")] = self.made[self.topic("t0")]
            found = check_capture(witness, self.journal(f"copy-{name}"), topics)
            steady = {topic for topic in topics if self.made[topic] == 1 and topic in self.sender.topics}
            found.check_acknowledged(
                {at: value for at, value in self.sender.acknowledged.items() if at[0] in steady}, flow.lost
            )
            if name == "r":
                found.check_transactions(self.topic("t0"), self.committer.committed, self.committer.aborted)

    def close(self) -> None:
        for topic in self.partitions:
            self.cluster.delete(topic)

    # --- Events -----------------------------------------------------------------------------------------------------

    def _begin_event(self) -> None:
        name = self.chance.choices(list(EVENTS), list(EVENTS.values()))[0]
        if getattr(self, f"_{name}")():
            self.counts[name] += 1

    def _take_broker(self, take: Callable[[int], None], bring_back: Callable[[int], None], seconds: float) -> bool:
        """Takes a broker away for some seconds. At times a second one may be away, and nothing is acknowledged."""
        if len(self.cluster.away()) > (self.chance.random() < 0.2):
            return False
        at = self.chance.choice([at for at in range(len(self.cluster.brokers)) if at not in self.cluster.away()])
        take(at)
        self.later(seconds, lambda: bring_back(at))
        return True

    def _kill_broker(self) -> bool:
        return self._take_broker(self.cluster.kill, self.cluster.start_again, self.chance.uniform(0, 8))

    def _stop_broker(self) -> bool:
        return self._take_broker(self.cluster.stop, self.cluster.start_again, self.chance.uniform(0, 5))

    def _pause_broker(self) -> bool:
        return self._take_broker(self.cluster.pause, self.cluster.resume, self.chance.choice((0.5, 2, 5, 12)))

    def _some_flow(self) -> Flow | None:
        found = [flow for flow in self.flows if flow.is_running and not flow.is_paused]
        return self.chance.choice(found) if found else None

    def _kill_flow(self) -> bool:
        flow = self._some_flow()
        if flow is not None:
            flow.kill()
            flow.not_before = time.monotonic() + self.chance.choice((0, 0, 1, 5))
        return flow is not None

    def _stop_flow(self) -> bool:
        flow = self._some_flow()
        if flow is not None:
            flow.stop()
            if flow.last_code:
                self._react(flow)
        return flow is not None

    def _pause_flow(self) -> bool:
        flow = self._some_flow()
        if flow is not None:
            flow.pause()
            self.later(self.chance.choice((0.2, 1, 5, 15)), flow.resume)
        return flow is not None

    def _take_over(self) -> bool:
        if self.leaving is not None or not self.mirror.is_running:
            return False
        leaving = self.leaving = self.mirror
        to_set = self._to_set.pop(leaving, set())
        self.mirror = self._mirror()
        self.mirror.may_end = set(leaving.may_end)
        self._to_set[self.mirror] = to_set
        if self.chance.random() < 0.5:
            leaving.pause()  # it wakes too late
            self.later(self.chance.uniform(0, 10), leaving.resume)
        self.mirror.start()
        return True

    def _remake_topic(self) -> bool:
        topic = self.topic(self.chance.choice(("m0", "m1", "s1", "s2")))
        if topic in self.gone or self.made[topic] > 5:
            return False
        self.gone.add(topic)
        for flow in self._flows_of(topic):
            flow.may_end |= {DELETED, REMADE}
            if flow not in self.captures.values():
                flow.may_end.add(GONE)
        self.cluster.delete(topic)
        self.later(self.chance.choice((0, 1, 3, 8)), lambda: self._make(topic))
        return True

    def _make(self, topic: str) -> None:
        self.partitions[topic] = self.chance.choice((1, 2, 3, 5))
        self.cluster.make(topic, self.partitions[topic])
        self.made[topic] += 1
        self.gone.discard(topic)

    def _flows_of(self, topic: str) -> list[Flow]:
        kind = topic[len(self.prefix) + 1 :]
        capture = self.captures["r" if kind[0] in "rt" else kind[0]]
        more: dict[str, list[Any]] = {"m0": [self.mirror, self.leaving], "m1": [self.transform]}
        return [flow for flow in [capture, *more.get(kind, [])] if flow is not None]

    def _add_partitions(self) -> bool:
        topic = self.chance.choice(sorted(self.partitions))
        if topic in self.gone or self.partitions[topic] >= PARTITIONS_MAX:
            return False
        self.partitions[topic] += self.chance.choice((1, 2))
        self.cluster.add_partitions(topic, self.partitions[topic])
        return True

    def _take_right(self) -> bool:
        name, operation = self.chance.choice(
            (("m0", AclOperation.WRITE), ("m1", AclOperation.WRITE), ("s0", AclOperation.READ))
        )
        topic = self.topic(name)
        for flow in self._flows_of(topic):
            flow.may_end.add(RIGHTS)
        self.cluster.deny(topic, operation)
        self.later(self.chance.uniform(1, 8), self.cluster.allow_all)
        return True

    def _run_ahead(self) -> bool:
        """Removes records, maybe such that were not captured yet. A capture that has not begun would begin after them, and
        tell of no loss."""
        flow, topic = self.captures["r"], self.topic("r0")
        if not self._has_begun(topic):
            return False
        flow.may_end.add(LOST)
        flow.pause()
        self.later(1.0, lambda: self._remove(topic))
        self.later(2.0, flow.resume)
        return True

    def _has_begun(self, topic: str) -> bool:
        """Returns whether the capture of the topic has stored where it goes on."""
        with suppress(jlog.JournalError):  # its journal is being made
            return any(one.part.startswith(f"{topic}/") for one in positions(*self._ends[self.captures["r"]]))
        return False

    def _remove(self, topic: str) -> None:
        if not self.cluster.away():
            for partition in range(self.partitions[topic]):
                self.cluster.remove_before(topic, -1, partition)  # up to the end
