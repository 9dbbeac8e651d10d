"""The parent's side of its children: each place of the crew has one, and gets another one as soon as it is dead."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torture.child import begin
from torture.records import Wrong

if TYPE_CHECKING:
    from torture.plan import Place, Plan

HUNG_SECONDS = 600.0  # guards against hanging only: an fdatasync may take seconds on a busy disk, and a cleaning makes many
# Allowed growth over the figures of a child when it first stood still. A journal keeps up to 32 descriptors of unsynced
# segments.
GROWN = {"descriptors": 80, "mappings": 12}


class Process:
    """Forks this process, which has loaded the library already: a child costs a few milliseconds. This process has no
    thread, and has opened nothing of the library, when it forks."""

    _ours: ClassVar[set[int]] = set()  # the parent's ends of all pipes

    def __init__(self, spec: dict[str, Any], errors: Path) -> None:
        theirs_in, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, theirs_out = os.pipe2(os.O_CLOEXEC)
        theirs_errors = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            begin(spec, (theirs_in, theirs_out, theirs_errors), {*self._ours, self.stdin, self.stdout})
        self._ours.update((self.stdin, self.stdout))
        for fd in (theirs_in, theirs_out, theirs_errors):
            os.close(fd)

    def poll(self) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, seconds: float) -> int:
        guard = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > guard:
                raise Wrong(f"process {self.pid} does not end")
            time.sleep(0.001)
        assert self.returncode is not None
        return self.returncode

    def close(self) -> None:
        for fd in (self.stdin, self.stdout):
            self._ours.remove(fd)
            os.close(fd)


class Child:
    """One child process, and the lines that were read from its files so far."""

    def __init__(self, place: Place, spec: dict[str, Any], directory: Path) -> None:
        self.place, self.spec = place, spec
        self.name: str = spec["name"]
        self.errors = directory / f"{self.name}.stderr"
        self._logs = directory
        self._read: dict[Path, int] = {}
        self.killed = False
        self.first_figures: dict[str, int] | None = None
        self.wakes_at: float | None = None
        self.disarms_at: float | None = None
        self.process = Process(spec, self.errors)
        self._rest = b""
        self._unanswered = 1

    # --- Its files -----------------------------------------------------------------------------------------------

    def lines(self, name: str) -> list[str]:
        """Returns the new lines, of acknowledgements or of records seen."""
        path = self._logs / name
        try:
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                found = file.read()
        except FileNotFoundError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        return whole.decode().splitlines()

    def remove_files(self) -> None:
        for path in (*self._read, self.errors):
            path.unlink(missing_ok=True)

    # --- Talking -------------------------------------------------------------------------------------------------

    def tell(self, words: str) -> None:
        try:
            os.write(self.process.stdin, words.encode() + b"\n")
            self._unanswered += 1
        except BrokenPipeError:
            return

    def answer(self) -> Any:
        """Returns the answer to the last command. Raises Wrong if none comes; returns None if the child has died."""
        found: Any = None
        while self._unanswered:
            line = self._line()
            if line is None:
                return None
            found = json.loads(line)
            self._unanswered -= 1
        return found

    def _line(self) -> bytes | None:
        guard = time.monotonic() + HUNG_SECONDS
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if ready:
                found = os.read(self.process.stdout, 1 << 16)
                if not found:
                    return None
                self._rest += found
                continue
            self.send(signal.SIGCONT)  # it may have stopped at a fail point
            if time.monotonic() > guard:
                self.send(signal.SIGUSR1)
                time.sleep(2)
                raise Wrong(f"{self.name} hangs; where its threads are: {self.errors}")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    # --- Signals -------------------------------------------------------------------------------------------------

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.killed = True
        self.send(signal.SIGKILL)
        self.process.wait(HUNG_SECONDS)

    def check_death(self) -> None:
        """Raises Wrong if the child died by itself."""
        status = self.process.returncode
        may_die = self.killed or "=kill@" in self.spec["failpoints"]
        if not (status == -signal.SIGKILL and may_die):
            raise Wrong(f"{self.name} ended with {status}:\n{self.errors.read_text(errors='replace')[-4000:]}")

    def check_growth(self, found: dict[str, int]) -> None:
        if self.first_figures is None:
            self.first_figures = found
            return
        for what, more in GROWN.items():
            if found[what] > self.first_figures[what] + more:
                raise Wrong(f"{self.name} had {self.first_figures[what]} {what} and has {found[what]}")

    def discard(self) -> None:
        self.kill()
        self.process.close()


@dataclass
class Counts:
    """The counts of a run so far."""

    rounds: int = 0
    lives: int = 0
    records: int = 0
    reads: int = 0
    kills: int = 0
    stops: int = 0
    errors: int = 0
    full: int = 0
    copies: int = 0
    reboots: int = 0
    events: Counter[str] = field(default_factory=Counter)  # of what the children have told
    children: int = 0
    raised: dict[int, int] = field(default_factory=dict)


class Crew:
    """All children of a life."""

    def __init__(self, plan: Plan, directory: Path, logs: Path, counts: Counts, url: str) -> None:
        self._plan, self._directory, self._logs, self._counts, self._url = plan, directory, logs, counts, url
        self._incarnations: dict[str, int] = {}
        self.alive: dict[str, Child] = {}
        self.dead: list[Child] = []  # children whose files have not been read to their end

    def fill(self) -> None:
        """Fills each place that has no child."""
        for place in self._plan.places:
            if place.name not in self.alive:
                self._start(place)
        for child in self.alive.values():
            child.answer()

    def _start(self, place: Place) -> None:
        number = self._incarnations[place.name] = self._incarnations.get(place.name, -1) + 1
        spec = {
            **self._plan.child(place, number),
            "path": str(self._directory / place.journal),
            "archive": str(self._logs / "archive") if place.journal == "archived" else "",
            "logs": str(self._logs),
            "scratch": str(self._directory / "scratch"),
            "url": self._url,
        }
        if spec.get("retentions") and spec["archive"]:
            archive = f"file://{spec['archive']}"
            spec["retentions"] = [{**retention, "archive": archive} for retention in spec["retentions"]]
        self.alive[place.name] = Child(place, spec, self._logs)
        self._counts.children += 1

    def look(self) -> None:
        """Replaces children that have died. Wakes or disarms those whose time has come."""
        now = time.monotonic()
        for child in list(self.alive.values()):
            if child.process.poll() is not None:
                self._bury(child)
                self._counts.kills += 1
                self._start(child.place)
                continue
            if child.wakes_at is not None and now >= child.wakes_at:
                child.send(signal.SIGCONT)
                child.wakes_at = None
            if child.disarms_at is not None and now >= child.disarms_at:
                child.tell("arm")
                child.disarms_at = None
            if "=stop@" in child.spec["failpoints"]:
                child.wakes_at = child.wakes_at or now + 0.4

    def _bury(self, child: Child) -> None:
        child.check_death()
        child.discard()
        self.dead.append(child)
        del self.alive[child.place.name]

    # --- Faults --------------------------------------------------------------------------------------------------

    def kill(self, place: str) -> None:
        self.alive[place].kill()

    def stop(self, place: str, seconds: float) -> None:
        child = self.alive[place]
        child.send(signal.SIGSTOP)
        child.wakes_at = time.monotonic() + seconds
        self._counts.stops += 1

    def arm(self, place: str, failpoints: str, seconds: float) -> None:
        child = self.alive[place]
        child.tell(f"arm {failpoints}")
        child.disarms_at = time.monotonic() + seconds
        self._counts.errors += 1

    # --- The end of a round --------------------------------------------------------------------------------------

    def stand(self) -> None:
        """Makes all children stand still between two calls, and then stops them: threads of the library too."""
        self._all("pause", disarm=True)
        for child in self.alive.values():
            child.send(signal.SIGSTOP)

    def go(self) -> None:
        for child in self.alive.values():
            child.send(signal.SIGCONT)
            child.tell("go")

    def end(self) -> None:
        """Ends all children in order."""
        self._all("end", disarm=True)
        for child in list(self.alive.values()):
            if child.process.wait(HUNG_SECONDS) != 0:
                self._bury(child)
            else:
                child.discard()
                self.dead.append(child)
                del self.alive[child.place.name]

    def kill_all(self) -> None:
        for child in self.alive.values():
            child.send(signal.SIGSTOP)
        for child in list(self.alive.values()):
            self._counts.kills += 1
            child.kill()
            self._bury(child)

    def _all(self, word: str, *, disarm: bool) -> None:
        for child in self.alive.values():
            child.wakes_at = child.disarms_at = None
            child.send(signal.SIGCONT)
            child.tell("arm") if disarm else None
            child.tell(word)
        for child in list(self.alive.values()):
            found = child.answer()
            if found is None and child.process.wait(HUNG_SECONDS) != 0:
                self._bury(child)
                self._counts.kills += 1
            elif found is not None:
                child.check_growth(found)

    def discard(self) -> None:
        for child in self.alive.values():
            child.discard()

    def forget_the_dead(self) -> None:
        """Removes the files of dead children, of which every line has been read."""
        for child in self.dead:
            child.remove_files()
        self.dead.clear()
