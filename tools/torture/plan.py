"""The events of a life, decided from its seed before it begins: crews, faults, and how each round ends."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random
from typing import Any

KILL_POINTS = (
    "append.encoded",
    "append.published",
    "close.deferred",
    "close.before_write",
    "close.written",
    "close.intent",
    "compress.copied",
    "rotate.before",
    "rotate.emptied",
    "rotate.filled",
    "rotate.turned",
    "direct.intent",
    "direct.written",
    "sync.begun",
    "sync.done",
    "sync.told",
    "roll.completed",
    "roll.renamed",
    "replace.intent",
    "replace.renamed",
    "replace.rotated",
    "ingest.linked",
    "ingest.completed",
    "takeover.proved",
    "takeover.taken",
    "takeover.derived",
    "takeover.unlinked",
    "takeover.replaced",
    "window.passing",
    "window.passed",
    "window.returning",
    "window.finishing",
    "window.finished",
    "recovery.begun",
    "file.read",
    "file.write",
    "file.write_block",
    "file.allocate",
    "file.sync",
    "file.sync_directory",
    "file.open",
    "file.unlink",
    "file.rename",
)
# (failpoint, errno)
ERRORS = (
    ("file.write_block", errno.ENOSPC),
    ("file.write", errno.ENOSPC),
    ("file.allocate", errno.ENOSPC),
    ("file.open", errno.EMFILE),
    ("file.open", errno.ENFILE),
    ("file.sync", errno.EIO),
    ("file.write_block", errno.EIO),
    ("file.rename", errno.ENOSPC),
)
REFUSED = f"file.fallocate={errno.EOPNOTSUPP}@0"  # a file system that has no fallocate
TIMES_US = (-(1 << 40), 1 << 51)  # of records with explicit times
TOPIC_TIMES_US = (0, 1 << 50)  # a topic refuses times before 1970 and after now
LIMIT_BYTES = 3 << 20
KINDS = ("named", "named", "durable", "tail", "named", "archive", "durable-tail")


@dataclass(frozen=True)
class Fault:
    """A fault of the child in this place of the crew. kind: kill, stop, errors or full."""

    at_seconds: float
    kind: str
    place: str = ""
    seconds: float = 0.0
    failpoints: str = ""


@dataclass(frozen=True)
class Round:
    number: int
    faults: list[Fault]
    ending: str  # "stand": all stop between two calls and go on; "end": all end in order; "kill": all are killed at once
    reboot: bool  # before the next round the journals are seen under another boot id


@dataclass(frozen=True)
class Place:
    """A place in a crew: children of the same role come one after another."""

    name: str
    role: str
    journal: str
    steady: bool  # it is never killed, so that its figures can be watched
    spec: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Size:
    """The sizes and numbers of one run."""

    journals: int = 2
    producers: int = 3
    subscribers: int = 4
    workers: int = 2
    raising: int = 1  # producers, subscribers and workers each, whose calls are cut off by a handler or for want of memory
    rounds: int = 16
    round_seconds: float = 3.0
    faults_a_second: float = 3.0
    mirrored: bool = False  # the first journal to a topic
    may_fill: bool = False  # the journals have a small file system of their own
    without: frozenset[str] = frozenset()  # names of actions, faults and errors that are left out


class Plan:
    """The plan of one life. A child takes its decisions from a generator of its own, made from this seed and its name."""

    def __init__(self, seed: int, life: int, size: Size) -> None:
        self.seed = f"{seed}/{life}"
        self.size = size
        chance = Random(f"plan {self.seed}")
        kinds = ("archived", "kept" if chance.random() < 0.5 else "lossy", "kept", "lossy")
        alone = "archived" if size.mirrored else chance.choice(kinds)
        self.journals = kinds[: size.journals] if size.journals > 1 else (alone,)
        self.refuses_fallocate = chance.random() < 0.25
        self.places = [place for journal in self.journals for place in self._crew(journal)]
        self._calm = chance.random() < 0.3  # the steady ones live as long as the journals
        self.rounds = [self._round(number, chance) for number in range(size.rounds)]

    def _crew(self, journal: str) -> list[Place]:
        retentions = self.retentions(journal)
        places = []
        for i in range(self.size.producers):
            spec = {"retentions": retentions, "pause_seconds": 0.02}
            places.append(Place(f"{journal}-p{i}", "producer", journal, i == 0, spec))
        for i in range(self.size.subscribers):
            kind = KINDS[i % len(KINDS)]
            if kind == "archive" and journal != "archived":
                kind = "tail"
            spec = {"kind": kind.partition("-")[0], "subscriber": None}
            named = kind in ("named", "durable")
            if named:
                spec["subscriber"] = f"{journal}-s{i}"
            spec["may_lose"] = journal == "lossy" or (not named and kind != "archive")
            places.append(Place(f"{journal}-s{i}", "subscriber", journal, i == 0, spec))
        for i in range(self.size.raising):
            spec = {"retentions": retentions, "pause_seconds": 0.0, "raising": True}
            places.append(Place(f"{journal}-rp{i}", "producer", journal, i == 0, spec))
            spec = {"kind": "named", "subscriber": f"{journal}-rs{i}", "may_lose": journal == "lossy", "raising": True}
            places.append(Place(f"{journal}-rs{i}", "subscriber", journal, i == 0, spec))
            spec = {"may_lose": journal == "lossy", "raising": True}
            places.append(Place(f"{journal}-rw{i}", "worker", journal, i == 0, spec))
        may_lose = {"may_lose": journal == "lossy"}
        places += [Place(f"{journal}-w{i}", "worker", journal, i == 0, may_lose) for i in range(self.size.workers)]
        places.append(Place(f"{journal}-k0", "keeper", journal, False, {}))
        if journal == self.journals[0]:
            places.append(Place(f"{journal}-v0", "mover", journal, False, {}))
        if self.size.mirrored and journal == self.journals[0]:
            places.append(Place(f"{journal}-m0", "mirror", journal, False, {}))
        return places

    def retentions(self, journal: str) -> list[dict[str, Any]]:
        """Returns retentions as fields of jlog.Retention. The journal is made with the first one, and may get any other."""
        if journal == "lossy":
            lossy = {"keep_for_subscribers": False, "limit_bytes": LIMIT_BYTES}
            return [
                {**lossy, "max_bytes": LIMIT_BYTES // 2},
                {**lossy, "max_bytes": LIMIT_BYTES // 4, "max_age": 5},
            ]
        kept = {"limit_bytes": LIMIT_BYTES}
        at_times = {"archive_on_roll": True} if journal == "archived" else {}
        return [kept, {**kept, **at_times, "max_bytes": LIMIT_BYTES // 2}, {**kept, **at_times, "max_age": 1}]

    def order(self, journal: str) -> str:
        """Returns the order of the journal's shared subscriber."""
        return Random(f"order {self.seed} {journal}").choice(("any", "key"))

    def child(self, place: Place, incarnation: int) -> dict[str, Any]:
        """Returns the specification of the next child in this place, with the `failpoints` that it has from its start."""
        name = f"{place.name}.{incarnation}"
        chance = Random(f"child {self.seed} {name}")
        spec = {
            "raising": False,
            **place.spec,
            "role": place.role,
            "without": sorted(self.size.without),
            "times_us": TOPIC_TIMES_US if self.size.mirrored else TIMES_US,
            "name": name,
            "seed": self.seed,
            "threads": 1,
            "switch_seconds": chance.choice((5e-3, 1e-3, 1e-5, 1e-6)),
            "failpoints": "" if place.steady else self._born_with(chance),
        }
        if place.role == "producer":
            spec["threads"] = 1 if spec["raising"] else chance.choice((1, 2, 3))
            spec["objects"] = chance.choice((1, spec["threads"]))
            spec["writers"] = [f"{place.name}{'abc'[i]}.{incarnation}" for i in range(spec["threads"])]
        elif place.role == "worker":
            spec["threads"] = 1 if spec["raising"] else chance.choice((1, 2))
        return spec

    def _born_with(self, chance: Random) -> str:
        armed = [REFUSED] if self.refuses_fallocate else []
        if chance.random() < 0.5 and "kill" not in self.size.without:
            visit = round(2 ** (chance.random() * 9))
            action = "kill" if chance.random() < 0.85 else "stop"
            armed.append(f"{chance.choice(KILL_POINTS)}={action}@{visit}")
        return ",".join(armed)

    def _round(self, number: int, chance: Random) -> Round:
        seconds = self.size.round_seconds
        count = round(seconds * self.size.faults_a_second)
        faults = [self._fault(chance, chance.random() * seconds) for _ in range(count)]
        is_last = number == self.size.rounds - 1
        endings = ("stand", "stand", "end") if self._calm else ("stand", "end", "kill", "kill")
        ending = "end" if is_last else chance.choice(endings)
        reboot = ending != "stand" and not is_last and chance.random() < 0.3 and "reboot" not in self.size.without
        return Round(number, sorted(faults, key=lambda fault: fault.at_seconds), ending, reboot)

    def _fault(self, chance: Random, at: float) -> Fault:
        mortal = [place.name for place in self.places if not place.steady]
        without = self.size.without
        kinds = {"kill": 5, "stop": 3, "errors": 2, "full": 1}
        kinds = {name: weight for name, weight in kinds.items() if name not in without} or kinds
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        if kind == "kill":
            return Fault(at, kind, chance.choice(mortal))
        place, seconds = chance.choice(self.places).name, chance.uniform(0.02, 0.6)
        if kind == "stop":
            return Fault(at, kind, place, seconds)
        if kind == "full" and self.size.may_fill:
            return Fault(at, kind, "", seconds)
        point, number = chance.choice([found for found in ERRORS if without.isdisjoint((found[0], errno.errorcode[found[1]]))])
        return Fault(at, "errors", place, seconds, f"{point}={number}@0")
