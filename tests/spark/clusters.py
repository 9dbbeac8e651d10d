"""A cluster on one machine: a master and two workers of Spark's, each worker on a "host" with a name, an address and mounts of
its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest

from patience import HUNG_SECONDS
from spark.running import Driver
from spark.sessions import QUICK_JAVA, ROOT

PACKAGES = Path(pyspark.__file__).parent.parent
EXECUTOR_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Both workers have their executor before the first task, however busy the machine is.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{round(HUNG_SECONDS)}s",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.interval": "10ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1ms",
}
both_ways = pytest.mark.parametrize("conf", [{}, SPECULATION], ids=["plain", "speculation"])


RUN_SECONDS = 2 * HUNG_SECONDS  # guards against hanging: a run starts several Java virtual machines


def skip_without_namespaces() -> None:
    tried = subprocess.run(
        ["unshare", "-m", "-u", "sh", "-c", "hostname x && mount -t tmpfs tmpfs /mnt"], capture_output=True, text=True
    )
    if tried.returncode != 0:
        pytest.skip(f"a worker with mounts and a name of its own is not allowed here, run as root: {tried.stderr.strip()}")


class Server:
    """A process of Spark's that runs until it is stopped, and what it has logged."""

    def __init__(self, log: Path, arguments: list[str], packages: Path, before: str = "") -> None:
        home = packages / "pyspark"
        java = [_java(), *QUICK_JAVA.split(), "-Xmx256m", "-cp", f"{home}/jars/*", *arguments]
        command = java if not before else ["unshare", "-m", "-u", "sh", "-c", f"{before} && exec {shlex.join(java)}"]
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**_environment(packages), "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},  # as spark-class does
            )

    def said(self, pattern: str) -> str:
        """Waits for a line like this; returns what its group matched."""
        until = time.monotonic() + HUNG_SECONDS
        while (found := re.search(pattern, text := self.log.read_text(errors="replace"))) is None:
            assert self.process.poll() is None, text[-2000:]
            assert time.monotonic() < until, text[-2000:]
            time.sleep(0.05)
        return found[1]

    def kill(self) -> None:
        """Ends it, and the executors that it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """`shared` is a directory that all hosts see; `private` is one of each host's own; `partly` is shared with worker-1 alone.
    The driver is on a third host, this one. packages: where PySpark is."""

    def __init__(self, folder: Path, packages: Path = PACKAGES) -> None:
        self._folder = folder
        self._packages = packages
        self.shared, self.private, self.partly = (folder / name for name in ("shared", "private", "partly"))
        for path in (self.shared, self.private, self.partly):
            path.mkdir(parents=True)
        names = "".join(f"127.0.0.{number + 1} worker-{number}\n" for number in (1, 2))
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = Server(folder / "master.log", ["org.apache.spark.deploy.master.Master", *address], packages)
        self.master = self._master.said(r"Starting Spark master at (spark://\S+)")
        self.workers = {1: self._start(1, [self.private]), 2: self._start(2, [self.private, self.partly])}
        for worker in self.workers.values():
            worker.said("(Successfully registered with master)")

    def _start(self, number: int, private: list[Path]) -> Server:
        mounts = [f"mount -t tmpfs tmpfs {shlex.quote(str(path))}" for path in private]
        mounts.append(f"mount --bind {shlex.quote(str(self._folder / 'hosts'))} /etc/hosts")
        work = self._folder / f"work-{number}"
        work.mkdir(exist_ok=True)
        arguments = ["--host", f"127.0.0.{number + 1}", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        arguments = ["org.apache.spark.deploy.worker.Worker", *arguments, "--work-dir", str(work), self.master]
        before = " && ".join([f"hostname worker-{number}", *mounts])
        return Server(self._folder / f"worker-{number}.log", arguments, self._packages, before)

    def hide(self, number: int, path: Path) -> None:
        """Mounts something else over the directory, on the host of this worker alone."""
        self._on(number, f"mount -t tmpfs tmpfs {shlex.quote(str(path))}")

    def show(self, number: int, path: Path) -> None:
        """Takes that mount away again, also where a task still has a file open there."""
        self._on(number, f"umount -l {shlex.quote(str(path))}")

    def _on(self, number: int, command: str) -> None:
        subprocess.run(["nsenter", "-t", str(self.workers[number].process.pid), "-m", "sh", "-c", command], check=True)

    def executors(self) -> list[int]:
        """Returns the processes of the executors that run now."""
        found = []
        for worker in self.workers.values():
            children = Path(f"/proc/{worker.process.pid}/task").glob("*/children")
            found += [int(pid) for path in children for pid in path.read_text().split()]
        return found

    def kill_an_executor(self) -> None:
        """Waits for an executor, if another one was killed just now."""
        until = time.monotonic() + HUNG_SECONDS
        while not (found := self.executors()):
            assert time.monotonic() < until, "there is no executor"
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)

    def pipeline(self, *arguments: object, conf: dict[str, str] | None = None, env: dict[str, str] | None = None) -> Running:
        """Starts `jlogtool pipeline` on the cluster."""
        settings = {**EXECUTOR_SETTINGS, **(conf or {})}
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [sys.executable, "-m", "jlog.cli", "pipeline", *map(str, arguments), "--master", self.master, *options]
        return Running(command, {**_environment(self._packages), **(env or {})})

    def driver(self, folder: Path, conf: dict[str, str] | None = None) -> Driver:
        """Starts driver.py on the cluster."""
        settings = folder / "conf"
        settings.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} {value}" for name, value in (conf or {}).items()]
        (settings / "spark-defaults.conf").write_text("\n".join(lines))
        return Driver(folder, self.master, packages=self._packages, SPARK_CONF_DIR=str(settings))

    def stop(self) -> None:
        for server in (*self.workers.values(), self._master):
            server.kill()


class Running:
    """A driver: a process that may be killed together with its virtual machine."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=env
        )

    def until(self, holds: Callable[[], object]) -> None:
        """Waits until this holds."""
        until = time.monotonic() + RUN_SECONDS
        while not holds():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until, "it did not happen"
            time.sleep(0.02)

    def summary(self) -> dict[str, Any]:
        """Waits for its end, which must have exit code 0."""
        out, err = self.process.communicate(timeout=RUN_SECONDS)
        assert self.process.returncode == 0, err.decode()
        found: dict[str, Any] = json.loads(out)
        return found

    def error(self) -> str:
        """Waits for its end, which must be an error; returns its message."""
        out, err = self.process.communicate(timeout=RUN_SECONDS)
        assert (self.process.returncode, out) == (1, b""), (out, err)
        return err.decode()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def _environment(packages: Path) -> dict[str, str]:
    """The environment of a host where jlog is installed, without what a test has put into that of this process."""
    paths = os.pathsep.join(map(str, [packages, ROOT, ROOT / "tests"]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"
