"""Uses whole journals with changed files, and with corrected checksums, in every public way.

A case takes a small journal and makes a few changes: to fields of structures and to the options. It also cuts, swaps, renames
and extends files. Then a process with little memory and time makes all calls of the library and all commands. Each call must
return, or raise an error of the journal or of the operating system. If no block of records got a new checksum, no call may
return a record that was never written. A case that fails is kept, with the command that repeats it in the same boot.

    .venv-test/bin/python tools/fuzz/journals.py --seconds 3600 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the other sanitizers reserve a gigabyte of addresses at their start

import pyarrow  # noqa: E402, F401 - here, and not in each child
from changes import Changes  # noqa: E402

import jlog  # noqa: E402
import oracle  # noqa: E402
from behaviour import hostile  # noqa: E402
from behaviour.hostile import Harm  # noqa: E402
from crash.ruins import JOURNALS  # noqa: E402
from crash.tampering import CAPACITY_AT, DEVICE_AT, copy_of_killed  # noqa: E402
from jlog.archive import Archive, restore  # noqa: E402
from jlog.cli import tool  # noqa: E402
from jlog.cli.commands import dump  # noqa: E402, F401

FAILING = ROOT / "build" / "fuzz-failing-journals"
FILE_BYTES = 256 << 20  # no call of a small journal writes more, so that no number in it fills the disk
CALL_SECONDS = 60.0  # guards against hanging only
FAILURES_MAX = 10
SOME = 10  # number of ways that most cases try, in any order
# A renamed file, and content that would be larger than FILE_BYTES.
OF_THE_SYSTEM = ("[Errno 2]", "[Errno 27]")
APPENDED = {b"more", b"much"}  # by hostile.every_way_in
Said = tuple[str, ...]


class Journal:
    """A journal with which the fuzzer begins: where its files are, and how they are copied."""

    def __init__(self, name: str, folder: Path) -> None:
        make, self._copy = JOURNALS[name]
        self.path = folder / name.replace(" ", "-")
        writer = make(folder / "made")
        shutil.copytree(folder / "made", self.path)
        if writer is not None:
            writer.close()
        shutil.rmtree(folder / "made")
        self.written = {content(record) for record in oracle.read_journal(self.copy(folder / "copy")).records}
        shutil.rmtree(folder / "copy")

    def copy(self, target: Path) -> Path:
        return self._copy(self.path, target)


def content(record: Any) -> Said:
    """Returns the content of a record, for a set."""
    return repr(record.value), repr(record.key), repr([tuple(header) for header in record.headers])


# --- What is done with them --------------------------------------------------------------------------------------------


def every_way(path: Path, scratch: Path) -> dict[str, Callable[[], Any]]:
    def archive() -> Any:
        url = (scratch / "archive").as_uri()
        retention = jlog.Retention(max_bytes=1, keep_for_subscribers=False, archive=url)
        with jlog.Writer(path, create=False, lock_timeout=10, retention=retention) as writer:
            writer.roll()
        jlog.Journal(path).clean()
        Archive(url).verify()
        restore(url, scratch / "restored")
        return list(jlog.Reader(url))

    def command(*arguments: str) -> None:
        code = tool.run([*arguments[:1], str(path), *arguments[1:]])
        if code not in (0, 1, 3):
            raise Harm(f"jlogtool {arguments[0]} ended with {code}")

    ways = hostile.every_way_in(path, scratch / "backup")

    def repair() -> Any:
        report = jlog.Journal.repair_at(path)
        if report.ok:
            try:
                list(jlog.Reader(path))
            except jlog.CorruptJournal as error:
                raise Harm(f"after a repair that found everything sound: {error}") from None

    def seek(way: Callable[[], Any] = ways["seek"]) -> None:
        with suppress(ValueError):  # the journal ends before that
            way()

    return {
        **ways,
        "seek": seek,
        "repair": repair,
        "archive": archive,
        **{" ".join(line): (lambda line=line: command(*line)) for line in (
            ("dump", "--format", "jsonl"), ("dump", "--blocks"), ("info",), ("verify", "--json"), ("options",),
        )},
    }  # fmt: skip


def without_inventions(way: Callable[[], Any], written: set[Said]) -> Callable[[], Any]:
    """Wraps a call; raises Harm if it returns a record that is none of these."""
    values = {said[0] for said in written}

    def checked() -> Any:
        found = way()
        for one in found if isinstance(found, list) else ():
            if isinstance(one, bytes) and repr(one) not in values and one not in APPENDED:
                raise Harm(f"the value {one!r} was never written")
            if isinstance(one, jlog.Record) and content(one) not in written and one.value not in APPENDED:
                raise Harm(f"the record {content(one)} was never written")
        return found

    return checked


def run(path: Path, order: list[str], written: set[Said] | None) -> None:
    """Tries every way into the journal at `path`, in this order. Raises Harm if one does harm; the files have changed then."""
    scratch = Path(tempfile.mkdtemp(dir=path.parent))
    ways = every_way(path, scratch)
    if written is not None:
        ways = {name: without_inventions(way, written) for name, way in ways.items()}

    def quiet() -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)

    chosen = {"quiet": quiet, **{name: ways[name] for name in order}}
    for name, (kind, told) in hostile.outcomes(chosen, seconds=CALL_SECONDS, file_bytes=FILE_BYTES).items():
        journals = kind == "returned" or issubclass(getattr(jlog, kind, Harm), jlog.JournalError)
        if not journals and not told.startswith(OF_THE_SYSTEM):
            raise Harm(f"{name}: {kind}: {told}")
    shutil.rmtree(scratch)


def again(kept: Path, folder: Path) -> int:
    case = json.loads((kept / "case.json").read_text())
    path = folder / "j"
    copying = copy_of_killed if case["current"] else shutil.copytree
    copying(kept / "j", path)
    try:
        run(path, case["order"], case["written"] and {tuple(said) for said in case["written"]})
    except Harm as harm:
        print(harm)
        return 1
    return 0


class Fuzzer:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder, self.failures = seed, folder, 0
        self.journals = [Journal(name, folder) for name in JOURNALS]
        self.written = {said for journal in self.journals for said in journal.written}

    def changed(self, number: int, path: Path) -> tuple[Changes, list[str]]:
        """Makes the case's journal at `path`, and returns the order in which it is used."""
        dice = random.Random(f"{self.seed}:{number}")
        others = [journal.path for journal in self.journals]
        changes = Changes(dice, dice.choice(self.journals).copy(path), others)
        changes.make()
        order = list(every_way(path, path))
        return changes, order if dice.random() < 0.2 else dice.sample(order, SOME)

    def try_one(self, number: int) -> None:
        path = self.folder / "j"
        changes, order = self.changed(number, path)
        try:
            run(path, order, None if changes.remade else self.written)
        except Harm as harm:
            self.failures += 1
            self.keep(number, str(harm))
        shutil.rmtree(path)

    def keep(self, number: int, harm: str) -> None:
        kept = FAILING / f"{self.seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        changes, order = self.changed(number, kept / "j")
        page = kept / "j" / "precommit"
        head = page.read_bytes()[:CAPACITY_AT] if page.exists() else b""
        found = page.stat() if page.exists() else None
        current = found and head[DEVICE_AT:] == struct.pack("<QQ", found.st_dev, found.st_ino)
        case = {
            "changes": changes.told, "harm": harm, "order": order, "current": bool(current),
            "written": None if changes.remade else sorted(self.written),
        }  # fmt: skip
        (kept / "case.json").write_text(json.dumps(case, indent=1))
        print(f"{changes.told}\n{harm}\nagain: {sys.executable} {sys.argv[0]} --again {kept}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="a case that was kept, once more")
    arguments = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="jlog-fuzz-", dir=memory) as folder:
        if arguments.again:
            return again(arguments.again, Path(folder))
        fuzzer, began, cases = Fuzzer(arguments.seed, Path(folder)), time.monotonic(), 0
        while time.monotonic() < began + arguments.seconds and fuzzer.failures < FAILURES_MAX:
            fuzzer.try_one(cases)
            cases += 1
    print(json.dumps({"cases": cases, "failures": fuzzer.failures, "seed": arguments.seed}))
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())
