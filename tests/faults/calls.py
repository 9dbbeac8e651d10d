"""Every public call with every system call below it failing once, or with an exception at every moment, or with an allocation
that fails: `PYTHONPATH=tests python -m faults.calls --help`."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import jlog
from faults import shim
from faults.moments import Moments, Stopped
from faults.public import CALLS
from faults.worlds import World, in_child
from filesystems import fast_disk
from patience import HUNG_SECONDS

ERRORS = {
    "open": (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EIO, errno.ENOSPC),
    "read": (errno.EIO, errno.EINTR, shim.SHORT),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR, shim.SHORT),
    "copy": (errno.ENOSPC, errno.EIO, errno.EINTR, shim.SHORT),
    "truncate": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "allocate": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR, errno.EOPNOTSUPP),
    "rename": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM),
    "link": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM),
    "unlink": (errno.EIO, errno.ENOMEM),
    "mkdir": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "sync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "map": (errno.ENOMEM,),
    "lock": (errno.ENOLCK,),
}  # fmt: skip
HARMLESS = (errno.EINTR, errno.EOPNOTSUPP, shim.SHORT)  # the call is made again, or another way is gone


ANYWHERE = ("moment", "memory")  # kinds of faults beside those of system calls
BAD_SECTOR = ("repair", "read", errno.EIO)  # what cannot be read is what a repair takes away


def hung(*_: object) -> None:
    raise AssertionError(f"nothing has come of it in {HUNG_SECONDS} s")


# --- What fails ------------------------------------------------------------------------------------------------------


class Fault:
    """The `at`-th system call of a kind fails; with `for_ever` the later ones too."""

    raises: tuple[type[BaseException], ...] = (OSError, jlog.JournalError)
    is_anywhere = False  # whether a call may be cut off anywhere, and raises what says nothing

    def __init__(self, kind: str, at: int, error: int, *, for_ever: bool = False) -> None:
        self.kind = kind
        self.at = at
        self.error = error
        self.for_ever = for_ever

    def __str__(self) -> str:
        error = errno.errorcode.get(self.error, "SHORT")
        return f"{self.kind} {self.at} {error}{' for ever' if self.for_ever else ''}"

    @classmethod
    def named(cls, kind: str, at: str, error: str = "", *for_ever: str) -> Fault:
        if kind == "moment":
            return Interruption(int(at))
        if kind == "memory":
            return NoMemory(int(at), int(error))
        return cls(kind, int(at), getattr(errno, error, shim.SHORT), for_ever=bool(for_ever))

    @property
    def is_harmless(self) -> bool:
        return self.error in HARMLESS

    @property
    def may_stick(self) -> bool:
        """The kernel may have dropped what an fdatasync failed to write. All else can be done again."""
        return self.kind == "sync"

    def begin(self) -> None:
        shim.arm(self.kind, self.at, self.error, for_ever=self.for_ever)

    def end(self) -> bool:
        """Nothing fails any more. Whether anything has."""
        return shim.disarm()[0] > 0


class Interruption(Fault):
    """A signal's handler that raises at the `at`-th moment."""

    raises = (Stopped, OSError, jlog.JournalError)
    is_anywhere = True

    def __init__(self, at: int) -> None:
        super().__init__("moment", at, 0)
        self.moments = Moments(at)

    def __str__(self) -> str:
        return f"moment {self.at} ({self.moments.struck})"

    def begin(self) -> None:
        self.moments.begin()

    def end(self) -> bool:
        self.moments.end()
        return self.moments.struck is not None


class NoMemory(Fault):
    """The `at`-th allocation fails, and the next `count` - 1."""

    raises = (MemoryError, OSError, RuntimeError, jlog.JournalError)  # CPython's RuntimeError for a lock without memory
    is_anywhere = True

    def __init__(self, at: int, count: int) -> None:
        super().__init__("memory", at, 0)
        self.count = count

    def __str__(self) -> str:
        return f"memory {self.at} {self.count}"

    def begin(self) -> None:
        shim.arm_memory(self.at, self.count)

    def end(self) -> bool:
        return shim.disarm_memory() >= self.at


class FullDisk(Fault):
    """A file system below `folder` that has no byte left."""

    def __init__(self, folder: Path) -> None:
        super().__init__("disk", 1, errno.ENOSPC, for_ever=True)
        self.ballast = folder / "ballast"

    def begin(self) -> None:
        with open(self.ballast, "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 10, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def end(self) -> bool:
        self.ballast.unlink(missing_ok=True)
        return True


def all_faults(counts: dict[str, int]) -> list[Fault]:
    """Each call, with each errno that it can give, once and for ever."""
    found = []
    for kind, errors in ERRORS.items():
        for at in range(1, counts[kind] + 1):
            for error in errors:
                found.append(Fault(kind, at, error))
                if error not in HARMLESS and kind != "lock":  # a lock that cannot be had is waited for
                    found.append(Fault(kind, at, error, for_ever=True))
    return found


# --- That it does no harm ---------------------------------------------------------------------------------------------


class Sweep:
    """The faults of one public call, one after the other, each in a world of its own."""

    def __init__(self, call: str, root: Path) -> None:
        self.call = call
        self.prepare, self.act = CALLS[call]
        self.root = root
        self.failures: list[str] = []
        self.faults = 0

    def world(self) -> World:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        return World(self.root)

    def count(self) -> dict[str, int]:
        """How many system calls of each kind there are where nothing fails."""
        world = self.world()
        try:
            self.prepare(world)
            shim.count_only()
            seen = self.act(world)
            _, counts = shim.disarm()
            if seen is not None:
                seen()
            world.check()
        finally:
            shim.disarm()
            world.close()
        return counts

    def count_anywhere(self, kind: str) -> list[Fault]:
        """Every moment, or every allocation, alone and with those after it."""
        moments, world = Moments(), self.world()
        try:
            self.prepare(world)
            if kind == "moment":
                moments.during(lambda: self.act(world))
                return [Interruption(at + 1) for at in range(moments.count)]
            shim.arm_memory(1 << 60)
            self.act(world)
            count = shim.disarm_memory()
            return [NoMemory(at + 1, several) for at in range(count) for several in (1, 1000)]
        finally:
            world.close()

    def try_one(self, fault: Fault) -> None:
        """The fault, and that all goes on without it."""
        before = len(os.listdir("/proc/self/fd"))
        self.faults += 1
        signal.alarm(int(HUNG_SECONDS))
        try:
            world = self.world()
            try:
                self._strike(world, fault)
            finally:
                fault.end()
                world.close()
            gc.collect()  # what was raised holds on to its frames
            if fault.is_anywhere and os.path.exists(os.path.join(world.path, "lock")):
                in_child(lambda: jlog.Writer(world.path, exclusive=True, lock_timeout=1).close())
            world.check_closed()
            left = len(os.listdir("/proc/self/fd")) - before
            assert left <= 0, f"{left} descriptors are left open"
        except BaseException as failure:  # noqa: BLE001
            text = "".join(traceback.format_exception(failure))
            self.failures.append(f"{self.call}: {fault}")
            sys.stderr.write(f"FAILED {self.call}: {fault}: {failure!r}\n{text}\n")
        finally:
            signal.alarm(0)

    def _strike(self, world: World, fault: Fault) -> None:
        self.prepare(world)
        world.error, stuck = fault.error, world.sync_error()
        raised: BaseException | None = None
        seen = None
        try:
            fault.begin()
            seen = self.act(world)
        except fault.raises as caught:
            raised = caught
        finally:
            struck = fault.end()
            world.error = 0
        if raised is not None:
            if not fault.is_anywhere:
                self._check_error(raised, fault, struck)
        elif seen is not None:
            seen()
        sticky = world.sync_error()
        allowed = sticky in (0, stuck) or (fault.may_stick and raised is not None)
        assert allowed, f"{errno.errorcode.get(sticky)} sticks"
        # What was to be synced is readable, and not durable.
        world.doubtful = raised is not None and (sticky != 0 or self.call == "append synced" or fault.is_anywhere)
        if sticky and world.writer is not None:
            world.reopen()
        world.check()
        if raised is not None and not sticky:
            seen = self.act(world)  # what failed is simply done again
            if seen is not None:
                seen()
            world.check()
        if not world.damaged:
            world.goes_on()

    def _check_error(self, raised: BaseException, fault: Fault, struck: bool) -> None:
        *_, last = traceback.extract_tb(raised.__traceback__)
        where = f"{raised!r} in {last.name}, line {last.lineno} of {last.filename}"
        assert struck, f"nothing failed, and it raised {where}"
        assert not fault.is_harmless, f"that is not a reason to raise {where}"
        if not isinstance(raised, jlog.JournalError):
            assert isinstance(raised, OSError)
            assert raised.errno, f"without an errno: {where}"
            assert str(self.root) in str(raised.filename), f"without its path: {where}"


def wanted(sweep: Sweep, arguments: argparse.Namespace) -> Sequence[Fault]:
    if arguments.fault:
        return [Fault.named(*arguments.fault)]
    if arguments.full_disk:
        return [FullDisk(sweep.root.parent)]
    if arguments.kind in ANYWHERE:
        found = sweep.count_anywhere(arguments.kind)
    else:
        found = [
            fault
            for fault in all_faults(sweep.count())
            if (sweep.call, fault.kind, fault.error) != BAD_SECTOR
            and str(fault).startswith(arguments.kind)
            and (arguments.error or "") in str(fault)
        ]
    if arguments.full or len(found) <= arguments.faults:
        return found
    return random.Random(f"{arguments.seed} {sweep.call}").sample(found, arguments.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--call", action="append", choices=sorted(CALLS), help="only these")
    parser.add_argument("--faults", type=int, default=40, help="of each call, any of them")
    parser.add_argument("--full", action="store_true", help="every one")
    parser.add_argument("--kind", default="", choices=["", *ERRORS, *ANYWHERE], help="only system calls of this kind")
    parser.add_argument("--error", help="only this errno, or SHORT")
    parser.add_argument("--seconds", type=float, default=math.inf, help="ends when these are over; the calls come in any order")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", nargs="+", help="only this one, as a failure names it: KIND AT ERRNO [for ever]")
    parser.add_argument("--folder", type=Path, help="where the journals lie, for the file system there")
    parser.add_argument("--full-disk", action="store_true", help="there is no space at --folder, a small file system")
    arguments = parser.parse_args()
    if not shim.loaded():
        command = [sys.executable, "-m", "faults.calls", *sys.argv[1:]]
        os.execve(sys.executable, command, shim.environment(PYTHONMALLOC="malloc"))
    signal.signal(signal.SIGALRM, hung)
    began, faults, failures = time.monotonic(), 0, []
    place = str(arguments.folder) if arguments.folder else fast_disk()
    with tempfile.TemporaryDirectory(prefix="jlog-calls-", dir=place) as temporary:
        root = Path(os.path.realpath(temporary)) / "root"
        shim.watch(root)
        calls = arguments.call or sorted(CALLS)
        if arguments.seconds < math.inf:
            random.Random(arguments.seed).shuffle(calls)
        for call in calls:
            if time.monotonic() >= began + arguments.seconds:
                break
            sweep = Sweep(call, root)
            for fault in wanted(sweep, arguments):
                if time.monotonic() < began + arguments.seconds:
                    sweep.try_one(fault)
            faults += sweep.faults
            failures += sweep.failures
    seconds = round(time.monotonic() - began, 1)
    sys.stdout.write(json.dumps({"faults": faults, "failures": failures, "seconds": seconds}) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
