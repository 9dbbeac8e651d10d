"""Proves that the driver and all executors see the same files in a directory.

Files that a task writes on a host of its own are lost to the driver, without any error of Spark's. That cannot happen on HDFS
or in an object store. So only paths of mounted file systems are looked at, on a cluster.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.pipeline.tables.files import Files
from jlog.spark.writing.driver import parent_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROOF = "_proof"  # begins a name that no reader of Parquet looks at
ROUNDS = 20  # of tasks, until one has run on every executor
TASK_SECONDS = 0.05  # so long a task waits, that others start on other executors


@dataclass(frozen=True)
class Sight:
    """An executor's sight of a directory. sees_driver: whether it sees the driver's file. file: its own."""

    host: str
    process: int  # of its Java virtual machine
    directory: str
    sees_driver: bool
    file: str | None


def check_all_see(spark: SparkSession, directories: Iterable[str]) -> None:
    """Lets the driver and every executor write a file in each directory, and look for that of the other. Raises JournalError,
    with the names of the hosts, where one does not see it."""
    if _is_local(spark):
        return
    files = Files(spark)
    local = [path for path in map(files.local_path, directories) if path is not None]
    hidden = sorted({f"{host} does not share {path}" for path, host in _hidden(spark, local)}) if local else []
    if hidden:
        raise JournalError(
            f"{', and '.join(hidden)} with {socket.gethostname()}, where Spark's driver runs. Files that a task writes there "
            f"would be lost. Name a place that the driver and all executors share: a mounted file system, HDFS, an object store"
        )


def _is_local(spark: SparkSession) -> bool:
    master = str(spark.sparkContext.master)
    return master.startswith("local") and not master.startswith("local-cluster")


def _hidden(spark: SparkSession, directories: list[str]) -> set[tuple[str, str]]:
    """Returns each directory with a host that does not share it."""
    name = f"{PROOF}-{secrets.token_hex(8)}"
    proofs = {path: os.path.join(path, name) for path in directories}
    try:
        for path in proofs.values():
            os.makedirs(path)
            Path(path, "driver").touch()
        sights = _sights(spark, list(proofs.values()))
        return {
            (os.path.dirname(sight.directory), sight.host)
            for sight in sights
            if not sight.sees_driver or sight.file is None or not os.path.exists(os.path.join(sight.directory, sight.file))
        }
    finally:
        for path in proofs.values():
            shutil.rmtree(path, ignore_errors=True)


def _sights(spark: SparkSession, proofs: list[str]) -> set[Sight]:
    """Returns the sights of all executors that are there. A program cannot choose where Spark runs a task, so tasks are started
    until there was one everywhere."""
    context: Any = spark.sparkContext
    tasks = 2 * max(2, context.defaultParallelism)

    def look(_: Iterable[int]) -> Iterator[Sight]:
        time.sleep(TASK_SECONDS)
        yield from (_sight(proof) for proof in proofs)

    found: set[Sight] = set()
    for _ in range(ROUNDS):
        found.update(context.parallelize(range(tasks), tasks).mapPartitions(look).collect())
        executors = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver is among them
        if len({(sight.host, sight.process) for sight in found}) >= executors:
            break
    return found


def _sight(proof: str) -> Sight:
    """Runs in a task."""
    host, process = socket.gethostname(), parent_of(os.getppid())  # Java has started this Python worker's daemon
    sees_driver = os.path.exists(os.path.join(proof, "driver"))
    name: str | None = f"{host}-{process}"
    try:
        os.makedirs(proof, exist_ok=True)
        Path(proof, str(name)).touch()
    except OSError:
        name = None
    if not sees_driver:  # nobody else removes it there
        shutil.rmtree(proof, ignore_errors=True)
    return Sight(host, process, proof, sees_driver, name)
