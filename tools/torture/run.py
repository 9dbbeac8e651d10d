"""One run: lives, one after the other, until the time is over or a promise is broken."""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import jlog
import oracle
from torture.accounts import Accounts
from torture.crew import Child, Counts, Crew
from torture.judge import Judge
from torture.plan import Plan, Round, Size
from torture.producer import retention_of
from torture.records import Wrong
from torture.topic import Topic
from torture.worker import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS = 0.01
JUDGE_SECONDS = 300  # guards against a judge that hangs
SMALL_BYTES = 1 << 30  # a file system above this is never filled


class Life:
    """Fresh journals, and the rounds on them. logs: directory of the archive and of the children's lines; it is never full."""

    def __init__(
        self,
        plan: Plan,
        directory: Path,
        logs: Path,
        counts: Counts,
        say: Callable[[str], None],
        topic: Topic | None,
    ) -> None:
        self.plan, self.directory, self.logs, self._counts, self._say = plan, directory, logs, counts, say
        self._began = time.monotonic()
        self._accounts: dict[str, Accounts] = {}
        self._judges: list[Judge] = []
        self._known = 0
        self._faults = open(logs / "faults.jsonl", "a", buffering=1)  # noqa: SIM115 - closed by run()
        (directory / "scratch").mkdir()
        for journal in plan.journals:
            self._make(journal)
        self._topic = topic
        if topic is not None:  # nothing is removed before the first mirror comes
            jlog.Journal(self._judges[0].path).add_subscriber(topic.subscriber)
        self.crew = Crew(plan, directory, logs, counts, topic.url if topic is not None else "")

    def _make(self, journal: str) -> None:
        archive = self.logs / "archive" if journal == "archived" else None
        fields = dict(self.plan.retentions(journal)[0])
        if archive is not None:
            fields["archive"] = archive.as_uri()
        retention = retention_of(fields)
        sizes = {"precommit": 4 << 10, "segment_bytes": 16 << 10}
        jlog.Journal.create(self.directory / journal, retention=retention, **sizes)
        letters = self.directory / f"{journal}-dead"
        jlog.Journal.create(letters, **sizes)
        order = self.plan.order(journal)
        jlog.Worker(self.directory / journal, NAME, order=order, dead_letters=letters, backoff=(0.01, 0.2), window=2000).close()
        accounts = self._accounts[journal] = Accounts(is_keyed=order == "key")
        self._judges.append(Judge(self.directory / journal, archive, accounts, may_lose=journal == "lossy"))

    def run(self) -> None:
        try:
            for round_ in self.plan.rounds:
                self._round(round_)
            for judge in self._judges:
                judge.judge_all_of_the_archive()
            if self._topic is not None:
                self._topic.check(self._judges[0].path, self._judges[0].accounts)
        finally:
            self.crew.discard()
            self._faults.close()

    def _round(self, round_: Round) -> None:
        self._note("round", number=round_.number, ending=round_.ending, reboot=round_.reboot)
        self.crew.go()
        self.crew.fill()
        self._work(round_)
        if round_.ending == "stand":
            self.crew.stand()
        elif round_.ending == "end":
            self.crew.end()
        else:
            self.crew.kill_all()
        faulthandler.dump_traceback_later(JUDGE_SECONDS, exit=True)
        self._judge(round_)
        faulthandler.cancel_dump_traceback_later()
        self._tell(round_)

    def _work(self, round_: Round) -> None:
        began, faults = time.monotonic(), list(round_.faults)
        ballast: Ballast | None = None
        while (now := time.monotonic() - began) < self.plan.size.round_seconds or ballast is not None:
            self.crew.look()
            while faults and faults[0].at_seconds <= now:
                fault = faults.pop(0)
                self._note("fault", at=now, **asdict(fault))
                if fault.kind == "kill":
                    self.crew.kill(fault.place)
                elif fault.kind == "stop":
                    self.crew.stop(fault.place, fault.seconds)
                elif fault.kind == "errors":
                    self.crew.arm(fault.place, fault.failpoints, fault.seconds)
                elif ballast is None:
                    ballast = Ballast(self.directory / "ballast", fault.seconds)
                    self._counts.full += 1
                self.crew.look()
            if ballast is not None and ballast.is_over():
                ballast = None
            time.sleep(TICK_SECONDS)

    # --- Judging -------------------------------------------------------------------------------------------------

    def _judge(self, round_: Round) -> None:
        for judge in self._judges:
            judge.accounts.gaps |= set(jlog.Journal(judge.path).gaps())
        self._listen()
        for judge in self._judges:
            judge.judge()
            if round_.ending == "kill":
                judge.judge_copies(self.directory / "scratch", self._counts)
        if round_.ending == "end":
            for judge in self._judges:
                judge.drain()
                judge.judge_leftovers()
                judge.judge()
        if round_.ending != "stand":
            shutil.rmtree(self.directory / "scratch")
            (self.directory / "scratch").mkdir()
        if round_.reboot:
            for judge in self._judges:
                judge.reboot()
                self._counts.reboots += 1

    def _listen(self) -> None:
        """Reads all lines, those of the writers first: their acknowledgements are the truth."""
        children = [*self.crew.dead, *self.crew.alive.values()]
        for child in children:
            if child.place.role == "producer":
                for writer in child.spec["writers"]:
                    self._accounts[child.place.journal].hear_writer(writer, child.lines(f"{writer}.acks"))
        for child in children:
            if child.place.role == "worker":
                self._accounts[child.place.journal].hear_worker(
                    child.name, child.lines(f"{child.name}.seen"), is_dead=child in self.crew.dead
                )
            elif child.place.role != "producer":
                self._listen_to_reader(child)
        self.crew.forget_the_dead()
        known = sum(accounts.sequences.count for accounts in self._accounts.values())
        self._counts.records += known - self._known
        self._known = known

    def _listen_to_reader(self, child: Child) -> None:
        name = child.spec.get("subscriber")
        accounts = self._accounts[child.place.journal]
        seat = accounts.seat(name or child.name, named=name is not None, may_lose=child.spec.get("may_lose", False))
        lines = child.lines(f"{child.name}.seen")
        self._counts.reads += sum(line.count(" ") - 1 for line in lines if line.startswith("r"))
        accounts.hear_reader(seat, lines)

    # --- Telling -------------------------------------------------------------------------------------------------

    def _note(self, what: str, **more: object) -> None:
        self._faults.write(json.dumps({"what": what, **more}) + "\n")

    def _tell(self, round_: Round) -> None:
        counts = self._counts
        counts.rounds += 1
        ends = " ".join(f"{judge.accounts.sequences.end:,}" for judge in self._judges)
        self._say(
            f"life {counts.lives} round {round_.number:2}  {round_.ending + ' reboot' * round_.reboot:12} "
            f"{counts.records:10,} records {counts.reads:11,} reads {counts.kills:6,} kills {counts.stops:6,} stops "
            f"{counts.errors:6,} errors {counts.copies:5,} copies  ends {ends}"
        )

    def last_faults(self) -> str:
        lines = (self.logs / "faults.jsonl").read_text().splitlines()
        return "\n".join(lines[-12:])

    def events(self) -> Counter[str]:
        return sum((accounts.events for accounts in self._accounts.values()), Counter())

    def raised(self) -> dict[int, int]:
        """Returns errno -> number of times."""
        found: dict[int, int] = {}
        for accounts in self._accounts.values():
            for number, times in accounts.errors.items():
                found[number] = found.get(number, 0) + times
            for number in accounts.history.errors:
                found[number] = found.get(number, 0) + 1
        return found


class Ballast:
    """Fills the file system for some seconds."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._until = path, time.monotonic() + seconds
        found = os.statvfs(path.parent)
        assert found.f_frsize * found.f_blocks < SMALL_BYTES, "only a small file system is filled"
        with open(path, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(64 << 10))
            except OSError:
                return

    def is_over(self) -> bool:
        if time.monotonic() < self._until:
            return False
        self._path.unlink()
        return True


class Run:
    """Runs lives, one after the other. root: directory of the journals; journals with an error are kept in `kept`."""

    def __init__(self, root: Path, kept: Path, seed: int, size: Size, broker: str | None) -> None:
        self._root, self._kept, self._seed, self._size, self._broker = root, kept, seed, size, broker
        self._began = time.monotonic()
        self.counts = Counts()

    def run(self, first_life: int, lives: int | None, minutes: float | None) -> bool:
        """Returns whether every promise held, and prints an error."""
        faulthandler.enable()
        number = first_life
        while self._life(number):
            number += 1
            is_over = minutes is not None and time.monotonic() - self._began >= minutes * 60
            if number - first_life == lives or (lives is None and is_over):
                return True
        return False

    def _life(self, number: int) -> bool:
        directory, logs = (root / f"life-{self._seed}-{number}" for root in (self._root, self._kept))
        directory.mkdir(parents=True)
        logs.mkdir(parents=True, exist_ok=True)
        self.counts.lives = number
        topic = Topic(self._broker, f"torture-{self._seed}-{number}") if self._broker else None
        life = Life(Plan(self._seed, number, self._size), directory, logs, self.counts, self._say, topic)
        try:
            life.run()
        except (Wrong, AssertionError, jlog.JournalError, oracle.OracleError, OSError) as error:
            if directory != logs:  # it is removed with the run
                shutil.copytree(directory, logs, symlinks=True, dirs_exist_ok=True)
            _report(error, life, self._seed, number)
            return False
        finally:
            self.counts.events += life.events()
            for what, times in life.raised().items():
                self.counts.raised[what] = self.counts.raised.get(what, 0) + times
        for path in {directory, logs}:
            shutil.rmtree(path)
        return True

    def _say(self, line: str) -> None:
        seconds = int(time.monotonic() - self._began)
        print(f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}  {line}", flush=True)


def _report(error: Exception, life: Life, seed: int, number: int) -> None:
    import traceback

    print(file=sys.stderr)
    traceback.print_exception(error)
    print(
        f"\nWRONG: {type(error).__name__}: {error}\n\n"
        f"seed {seed}, life {number}; the journals, what was acknowledged and what was seen: {life.logs}\n"
        f"the last faults, of {life.logs / 'faults.jsonl'}:\n{life.last_faults()}\n\n"
        f"once more, with the same plan (how the kernel mixes the processes is never the same twice):\n"
        f"    tools/torture.py --seed {seed} --life {number} --lives 1",
        file=sys.stderr,
    )


def die_quietly() -> None:
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
