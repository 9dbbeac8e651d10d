"""Power losses at every moment of recorded runs: `PYTHONPATH=tests python -m faults.replay --help`."""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import jlog
from crash.flips import check_flips
from crash.tampering import BOOT_ID_AT, another_boot, name_itself
from faults import scenario, shim
from faults.actor import SUBSCRIBER
from faults.disk import PLAIN, Disk, Image
from faults.promises import Promises, Records, check_soundness, is_made
from faults.recording import Event, read_log
from filesystems import fast_disk
from jlog._core.format.checksum import crc32c
from jlog._core.format.dual_slot import birth_us
from processes.units import values_of

ALIVE = "alive"  # the machine has not failed: only the processes have died
BOOTS = ("changed", "absent")


# --- A state on a disk ----------------------------------------------------------------------------------------------


def materialise(image: Image, root: Path, *, new_boot: bool) -> None:
    """Writes it with the device and inode numbers that the journal has noted, so that it does not count as a copy."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path in sorted(image):
        content = image[path]
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
    journal = root / "j"
    if (journal / "precommit").exists() and os.path.getsize(journal / "precommit") > BOOT_ID_AT + 16:
        name_itself(journal / "precommit")
        if new_boot:
            another_boot(journal)
    if is_made(str(journal)):
        _name_itself(journal / "journal.meta")


def _name_itself(meta: Path) -> None:
    first, _, body = meta.read_bytes().partition(b"\n")
    fields = json.loads(body)
    with open(meta, "r+b") as file:
        fields["inode"], fields["birth_us"] = os.fstat(file.fileno()).st_ino, birth_us(file.fileno())
        body = json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"
        file.truncate()
        file.write(b"%s crc32c=%08x\n" % (first.rpartition(b" ")[0], crc32c(body)) + body)
        file.truncate()


# --- One reopening --------------------------------------------------------------------------------------------------


class Reopening:
    """A reader alone, then a writer, on what a power loss has left; the promises are kept, and new ones made."""

    def __init__(self, path: str, promises: Promises, name: str, *, alive: bool) -> None:
        self.path = path
        self.promises = promises
        self.name = name
        self.alive = alive

    def run(self) -> Promises:
        """Returns what is promised once a reader has found what is left."""
        alone = None
        if is_made(self.path):
            alone = self._check()
        else:
            assert not self.promises.made, "the journal is gone"
        if not self.alive:
            self.promises.settle(alone or [], jlog.Journal(self.path).first_sequence if alone is not None else 0)
        settled = copy.deepcopy(self.promises)
        with jlog.Writer(self.path, **({} if alone is not None else scenario.OPTIONS)) as writer:
            shim.note("made")
            found = self._check()
            # A direct block that its killed writer could not publish is there once a writer has looked.
            assert found[: len(alone or [])] == (alone or []), f"{alone} became {found} with a writer"
            assert not alone or self.alive or found == alone, f"{alone} became {found} with a writer"
            self.promises.settle(found, jlog.Journal(self.path).first_sequence)
            self._append(writer, 0, [b""], sync=True)
            self._append(writer, 1, [b""] * 3, sync=False)
            self._commit()
        self._check()
        check_soundness(self.path, indexes=self.alive)
        return settled

    def _check(self) -> Records:
        return self.promises.check(self.path, all_published=self.alive)

    def _append(self, writer: jlog.Writer, unit: int, parts: list[bytes], *, sync: bool) -> None:
        values = values_of(self.name, unit, len(parts), 60)
        first = writer.extend(values)
        self.promises.forget(first)
        told = {
            "writer": self.name,
            "unit": unit,
            "sequence": first,
            "values": [value.decode() for value in values],
        }
        self._tell("appended", durable=False, **told)
        if sync:
            writer.sync()
            self._tell("durable", end=first + len(parts))

    def _commit(self) -> None:
        """The subscriber goes on to the end."""
        if SUBSCRIBER not in jlog.Journal(self.path).subscribers():
            return
        with jlog.Reader(self.path, SUBSCRIBER) as reader:
            for _ in reader:
                pass
            self._tell("committing", position=reader.position)
            reader.commit()

    def _tell(self, kind: str, **told: Any) -> None:
        shim.note(kind, **told)
        self.promises.learn(kind, told)
        self.promises.follow(kind, told)


class Replay:
    """Reopens what power losses at moments of a recording leave."""

    def __init__(self, events: list[Event], folder: Path, boot: str, until: float) -> None:
        self.events = events
        self.until = until
        self.folder = folder
        self.boot = boot
        self.states = 0
        self.failures: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def all_values(self, events: list[Event], promises: Promises) -> Promises:
        for event in events:
            if event.kind == "N":
                promises.learn(*event.note)
        return promises

    def run(self, wanted: dict[int, list[str]]) -> None:
        """`wanted`: after how many events, and what is left of what was not synced then: see Disk.state, or ALIVE. After
        a + stand a moment and a choice of a second power loss, in what followed the first; + alone is any."""
        disk, promises = Disk(), self.all_values(self.events, Promises())
        for prefix in range(len(self.events) + 1):
            for choice in wanted.get(prefix, ()):
                if time.monotonic() >= self.until:
                    return
                self._try(disk, promises, prefix, choice)
            if prefix < len(self.events):
                event = self.events[prefix]
                disk.follow(event)
                if event.kind == "N":
                    promises.follow(*event.note)

    def _try(self, disk: Disk, promises: Promises, prefix: int, choice: str) -> None:
        first, plus, second = choice.partition("+")
        image = disk.as_it_is() if first == ALIVE else disk.state(first)
        log = self.folder / "second.log" if plus else None
        where = f"{prefix}:{choice}"
        try:
            self._flip(image, where)
            inodes, settled = self.reopen(image, copy.deepcopy(promises), first, "after", log)
            if log is not None:
                self._second(image, settled, inodes, log, second, where)
        except Exception as error:  # noqa: BLE001
            self.failed(where, error)

    def _flip(self, image: Image, where: str) -> None:
        """Flips a bit in a copy of what the loss has left, and then cuts the power once more."""
        root = self.folder / "root"
        shim.watch(root)
        materialise(image, root, new_boot=True)
        if is_made(str(root / "j")):
            check_flips(root / "j", self.folder / "flips", random.Random(where))

    def reopen(
        self, image: Image, promises: Promises, choice: str, name: str, log: Path | None = None
    ) -> tuple[dict[str, int], Promises]:
        """Returns the inodes of the image's files, and what is promised once a reader has found what is left."""
        self.states += 1
        root = self.folder / "root"
        shim.watch(root)
        # Without a boot id each process has one of its own, and the second loss finds the page of this very process.
        another = self.boot == "changed" or name == "later"
        materialise(image, root, new_boot=choice != ALIVE and another)
        inodes = {path: os.stat(root / path).st_ino for path in image}
        if log is not None:
            log.unlink(missing_ok=True)
            shim.log_to(log)
        try:
            alive = choice == ALIVE
            return inodes, Reopening(str(root / "j"), promises, name, alive=alive).run()
        finally:
            shim.log_to(None)

    def _second(self, image: Image, promises: Promises, inodes: dict[str, int], log: Path, wanted: str, where: str) -> None:
        events = read_log(log, self.folder / "root")
        dice = random.Random(where)
        moment, _, choice = wanted.partition(":")
        stop = int(moment) if moment else dice.randrange(len(events) + 1)
        choice = choice or dice.choice((*PLAIN, *(str(dice.random()) for _ in range(8))))
        disk, promises = Disk(image), self.all_values(events, copy.deepcopy(promises))
        disk.identify(inodes)
        for event in events[:stop]:
            disk.follow(event)
            if event.kind == "N":
                promises.follow(*event.note)
        try:
            self.reopen(disk.state(choice), promises, choice, "later")
        except Exception as error:  # noqa: BLE001
            self.failed(f"{where.partition('+')[0]}+{stop}:{choice}", error)

    def failed(self, where: str, error: Exception) -> None:
        text = "".join(traceback.format_exception(error))
        self.failures.append(f"{where}\n{text}")
        sys.stderr.write(f"FAILED {where}: {error!r}\n{text}\n")


# --- Which states ---------------------------------------------------------------------------------------------------


def spread(events: list[Event], states: int, dice: random.Random) -> dict[int, list[str]]:
    """Returns so many states, at moments spread over the run. With 0, every moment has each plain choice and some seeds."""
    moments = list(range(len(events) + 1))
    wanted: dict[int, list[str]] = {moment: [] for moment in moments}
    if states == 0:
        for moment in moments:
            seeds = [str(dice.random()) for _ in range(4)]
            wanted[moment] += [ALIVE, *PLAIN, *seeds, f"{seeds[0]}+", f"{seeds[1]}+"]
        return wanted
    for i in range(states):
        choice = dice.choice((ALIVE, *PLAIN, *(str(dice.random()) for _ in range(10))))
        wanted[dice.choice(moments)].append(choice + ("+" if i % 3 == 0 and choice != ALIVE else ""))
    return wanted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the run that is recorded")
    parser.add_argument("--seeds", type=int, default=1, help="so many runs, from --seed on")
    parser.add_argument("--seconds", type=float, help="runs until these are over, in place of --seeds")
    parser.add_argument("--steps", type=int, default=60, help="of each run")
    parser.add_argument("--boot", choices=BOOTS, default="changed", help="the boot id after the loss: another, or unreadable")
    parser.add_argument("--states", type=int, default=150, help="tried of each run")
    parser.add_argument("--full", action="store_true", help="every moment of the run, 11 states at each")
    parser.add_argument("--folder", type=Path, help="where the logs stay; a run that is there is not recorded again")
    parser.add_argument("--state", help="only this one: MOMENT:CHOICE, as a failure names it")
    parser.add_argument("--events", action="store_true", help="lists the events before that state")
    arguments = parser.parse_args()
    if not shim.loaded() or (arguments.boot == "absent") != ("JLOG_SHIM_NO_BOOT_ID" in os.environ):
        more = {"JLOG_SHIM_NO_BOOT_ID": "1"} if arguments.boot == "absent" else {}
        os.execve(sys.executable, [sys.executable, "-m", "faults.replay", *sys.argv[1:]], shim.environment(**more))
    shim.dry_sync(True)
    with tempfile.TemporaryDirectory(prefix="jlog-replay-", dir=fast_disk()) as temporary:
        return replay_all(arguments, Path(temporary))


def replay_all(arguments: argparse.Namespace, temporary: Path) -> int:
    began, states, failed = time.monotonic(), 0, 0
    until = began + arguments.seconds if arguments.seconds else math.inf
    runs = 0
    for seed in itertools.count(arguments.seed):
        if runs and (time.monotonic() >= until if arguments.seconds else runs == arguments.seeds):
            break
        runs += 1
        folder = (arguments.folder or temporary) / f"{arguments.boot}-{seed}"
        if not (folder / "log").exists():
            scenario.record(folder, seed, arguments.steps, arguments.boot)
            (folder / "below").write_text(os.path.realpath(folder / "root"))
        events = read_log(folder / "log", (folder / "below").read_text())
        replay = Replay(events, temporary / "work", arguments.boot, until)
        wanted = spread(events, 0 if arguments.full else arguments.states, random.Random(seed))
        if arguments.state:
            moment, _, choice = arguments.state.partition(":")
            wanted = {int(moment): [choice]}
            for number, event in enumerate(events[: int(moment)] if arguments.events else ()):
                sys.stderr.write(f"{number} {event}\n")
        replay.run(wanted)
        states += replay.states
        failed += len(replay.failures)
        if replay.failures:
            kept = arguments.folder or Path(tempfile.mkdtemp(prefix="jlog-replay-"))
            if not arguments.folder:
                shutil.copytree(folder, kept / folder.name)
            sys.stderr.write(
                f"again: PYTHONPATH=tests {sys.executable} -m faults.replay --boot {arguments.boot} --seed {seed} "
                f"--folder {kept} --state {replay.failures[0].splitlines()[0]}\n"
            )
    seconds = time.monotonic() - began
    summary = {"states": states, "failures": failed, "runs": runs, "seconds": round(seconds, 1)}
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
