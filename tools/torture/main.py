"""The command line."""

from __future__ import annotations

import argparse
import errno
import math
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_broker import Broker, Missing, fetch

from faults import shim
from filesystems import IMAGES, CannotMount, mounted
from torture.plan import Size
from torture.run import SMALL_BYTES, Run, die_quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torture.crew import Counts


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="torture.py",
        description="Runs everything at once against journals of its own, with kills, stops and faults at random, and checks "
        "it against what was acknowledged. Status 1 at the first thing that is wrong.",
    )
    parser.add_argument("--minutes", type=float, help="how long; a life that has begun is ended")
    parser.add_argument("--lives", type=int, help="how many, instead: each is a set of fresh journals")
    parser.add_argument("--seed", type=int, help="of everything that is decided at random (default: another one)")
    parser.add_argument("--life", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--path", type=Path, help="where the journals lie (default: a temporary directory)")
    parser.add_argument(
        "--filesystem",
        choices=("tmpfs", *IMAGES),
        help="a small one for the journals alone, which is filled at times; needs root",
    )
    parser.add_argument("--megabytes", type=float, default=64, help="of that file system: %(default)s")
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="one journal is mirrored to a topic; starts a broker, with Java and Maven",
    )
    parser.add_argument("--journals", type=int, default=Size.journals, help="of each life: %(default)s")
    parser.add_argument("--producers", type=int, default=Size.producers, help="of each journal: %(default)s")
    parser.add_argument("--subscribers", type=int, default=Size.subscribers, help="of each journal: %(default)s")
    parser.add_argument("--workers", type=int, default=Size.workers, help="of each journal: %(default)s")
    parser.add_argument(
        "--raising",
        type=int,
        default=Size.raising,
        help="producers, subscribers and workers each, of each journal, whose calls are cut off by a signal's handler that "
        "raises or for want of memory: %(default)s",
    )
    parser.add_argument("--rounds", type=int, default=Size.rounds, help="of each life: %(default)s")
    parser.add_argument("--round-seconds", type=float, default=Size.round_seconds, help="%(default)s")
    parser.add_argument("--faults", type=float, default=Size.faults_a_second, help="a second: %(default)s")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out an action (append, once, extend, arrow, ingest, flush, sync, roll, close, drop, pickle, fork, clean, "
        "archive, verify, look, backup, restore), a fault (kill, stop, errors, full, reboot, memory), or an error (EIO, …)",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    options = arguments_of(given)
    if options.raising and "memory" not in options.without and not shim.loaded():
        os.execve(sys.executable, [sys.executable, sys.argv[0], *given], shim.environment(PYTHONMALLOC="malloc"))
    os.environ.pop("LD_PRELOAD", None)  # no other program needs it
    path = options.path or Path(tempfile.mkdtemp(prefix="torture-"))
    path.mkdir(parents=True, exist_ok=True)
    die_quietly()
    with ExitStack() as stack:
        try:
            is_right = _run(options, path, stack)
        except CannotMount as error:
            print(f"--filesystem {options.filesystem}: {error}", file=sys.stderr)
            return 2
    if is_right and options.path is None:
        path.rmdir()
    return 0 if is_right else 1


def _run(options: argparse.Namespace, path: Path, stack: ExitStack) -> bool:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    broker = _broker(path, stack) if options.kafka else None
    root = path
    if options.filesystem:
        root = stack.enter_context(mounted(options.filesystem, options.megabytes))
    found = os.statvfs(root)
    minutes = options.minutes if options.minutes or options.lives else 1.0
    # A life that has begun is ended, so none is longer than the whole.
    rounds = options.rounds if minutes is None else min(options.rounds, math.ceil(60 * minutes / options.round_seconds))
    size = Size(
        journals=options.journals,
        producers=options.producers,
        subscribers=options.subscribers,
        workers=options.workers,
        raising=options.raising,
        rounds=rounds,
        round_seconds=options.round_seconds,
        faults_a_second=options.faults,
        mirrored=broker is not None,
        may_fill=found.f_frsize * found.f_blocks < SMALL_BYTES,
        without=frozenset(options.without),
    )
    print(f"seed {seed}, journals at {root}, {'which is filled at times' if size.may_fill else 'never filled'}")
    began = time.monotonic()
    run = Run(root, path, seed, size, broker)
    is_right = run.run(options.life, options.lives, minutes)
    _summary(run.counts, time.monotonic() - began, options.life)
    return is_right


def _broker(path: Path, stack: ExitStack) -> str | None:
    """Returns the address of a broker that ends with the run. Returns None, and prints the reason, if this machine has none."""
    try:
        fetch()
        broker = Broker(path / "broker")
        stack.callback(shutil.rmtree, broker.directory, ignore_errors=True)
        return stack.enter_context(broker).address
    except Missing as missing:
        print(f"--kafka is left out: {missing}")
        return None


def _summary(counts: Counts, seconds: float, first_life: int) -> None:
    raised = ", ".join(f"{errno.errorcode.get(number, 'locked')} {times:,}" for number, times in sorted(counts.raised.items()))
    print(
        f"\n{seconds / 60:.1f} minutes, {counts.lives - first_life + 1} lives, {counts.rounds} rounds, "
        f"{counts.children:,} processes\n"
        f"{counts.records:,} records, read {counts.reads:,} times\n"
        f"{counts.kills:,} kills, {counts.stops:,} stops, {counts.errors:,} times with failing system calls, "
        f"{counts.full:,} times with a full disk, {counts.reboots:,} reboots, {counts.copies:,} copies opened\n"
        f"{counts.events['i']:,} calls interrupted by a signal's handler that raised, {counts.events['s']:,} without memory, "
        f"{counts.events['m']:,} directories moved, removed, restored or linked\n"
        f"what was raised: {raised or 'nothing'}",
        file=sys.stdout,
    )
