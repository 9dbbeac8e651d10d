"""The command line."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_broker import Missing, fetch

from kafka_torture.cluster import Cluster
from kafka_torture.life import Life
from kafka_torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

LIFE_SECONDS = 120.0


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="kafka_torture.py",
        description="Moves records between journals and three brokers, while these, topics, rights and flows are killed, "
        "stopped, deleted and taken away at random, and compares both ends. Status 1 at the first thing that is wrong.",
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long, but a life that has begun is ended: %(default)s")
    parser.add_argument("--life-seconds", type=float, default=LIFE_SECONDS, help="of faults in each life: %(default)s")
    parser.add_argument("--seed", type=int, help="of everything that is decided at random (default: another one)")
    parser.add_argument("--life", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--path", type=Path, help="where everything lies, and stays after an error (default: a temporary one)")
    parser.add_argument("--secured", action="store_true", help="let the flows log in by SCRAM over TLS, anew every 20 s")
    options = parser.parse_args(given)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        fetch()
    except Missing as missing:
        print(f"kafka_torture.py: {missing}", file=sys.stderr)
        return 2
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    path = options.path or Path(tempfile.mkdtemp(prefix="kafka-torture-"))
    print(f"seed {seed}, everything at {path}", flush=True)
    try:
        _run(path, seed, options)
    except Wrong as error:
        print(
            f"WRONG: {error}\nthe same plan: --seed {seed} --life {_life_of(path)}{' --secured' * options.secured}",
            file=sys.stderr,
        )
        return 1
    shutil.rmtree(path, ignore_errors=True)
    return 0


def _life_of(path: Path) -> int:
    return max((int(found.name[4:]) for found in path.glob("life*")), default=0)


def _run(path: Path, seed: int, options: argparse.Namespace) -> None:
    began = time.monotonic()
    cluster = Cluster(path, secured=options.secured)
    totals: Counter[str] = Counter()
    number = options.life
    try:
        cluster.start()
        while number == options.life or time.monotonic() - began < 60 * options.minutes:
            life = Life(cluster, path / f"life{number}", f"{seed}/{number}")
            life.run(min(options.life_seconds, 60 * options.minutes))
            records = sum(one.count for one in life.appenders) + len(life.sender.acknowledged) + len(life.committer.committed)
            totals.update({"lives": 1, "records": records, **life.counts})
            life.close()
            shutil.rmtree(life.directory)
            minutes = (time.monotonic() - began) / 60
            print(f"{minutes:.1f} minutes: " + ", ".join(f"{name} {count:,}" for name, count in totals.items()), flush=True)
            number += 1
    finally:
        cluster.close()
