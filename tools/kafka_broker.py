"""A small Apache Kafka for tests and first tries: one node, fetched by Maven, run by Java, gone when it is stopped.

`tools/kafka-broker` runs one from the command line. Needs nothing but the standard library, `mvn` and a JRE.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POM = Path(__file__).with_name("kafka-broker.xml")
BUILD = ROOT / "build"
INSTALL = "apt-get install --no-install-recommends maven default-jre-headless"
JAVA_MIN = 17
SESSION_SECONDS = 3.0  # a broker that was killed does not come back sooner
START_SECONDS = 90.0  # guards against a broker that never comes up; it takes three or four
STOP_SECONDS = 20.0
DUMP_SECONDS = 300.0
QUIET_SECONDS = 4.0
USUAL_PORT = 9092  # that of every example with Kafka
PORTS = range(11_000, 28_000)  # below the range from which the system takes clients' ports
PR_SET_PDEATHSIG = 1
CAUSE = re.compile(r"PKIX|UnknownHost|Unknown host|Connection refused|timed out|not resolve", re.IGNORECASE)

# A broker for a laptop: little memory, quick to start and to come back, nothing replicated.
JVM = [
    "-Xmx256m",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
]
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "true",  # like most brokers: a test fails if it makes a topic by itself
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "num.network.threads": "2",
    "num.io.threads": "2",
}


class Missing(Exception):
    """This machine lacks something that a broker needs. The message has the command that installs it."""


class Broken(Exception):
    """The broker did not come up. The message has the end of its output."""


def check_machine(pom: Path = POM) -> None:
    """Raises Missing if the program is not there that fetches the jars, or Java in a version that runs the broker."""
    java = shutil.which("java")
    if java is None:
        raise Missing(f"no java: {INSTALL}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        raise Missing(f"a broker needs Java {JAVA_MIN} or newer: {INSTALL}")
    if not _complete(pom) and shutil.which("mvn") is None:
        raise Missing(f"no mvn: {INSTALL}")


def fetch(pom: Path = POM) -> Path:
    """Returns the directory of the broker's jars, 45 MB. The first call fetches them. Other calls at the same time wait for
    it."""
    jars = jars_of(pom)
    if _complete(pom):
        return jars
    check_machine(pom)
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{pom.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(pom):
            shutil.rmtree(jars, ignore_errors=True)
            print(f"kafka-broker: Maven downloads what {pom.name} names; for a broker some 70 MB …", file=sys.stderr)
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Missing(f"mvn could not fetch what {pom.name} names: {cause_in(done.stdout + done.stderr)}")
            if pom == POM:
                _prepare()
            (jars / "complete").write_text(pom.read_text())
    return jars


def _prepare() -> None:
    """Does once what each new broker would do: formats a data directory, and lets the JVM write down the classes that a broker
    has loaded once it has started. With them it starts in half the processor time."""
    with tempfile.TemporaryDirectory(prefix="kafka-broker-", ignore_cleanup_errors=True) as directory:
        broker = Broker(directory, jvm=[f"-XX:ArchiveClassesAtExit={CLASSES}"])
        broker.format_anew()
        shutil.copytree(broker.data, FORMATTED)
        broker.run()
        broker.wait_until_ready()
        broker.stop(DUMP_SECONDS)


def java(*arguments: str | Path, options: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs a class of Kafka's with these arguments."""
    known = [f"-XX:SharedArchiveFile={CLASSES}"] if CLASSES.exists() else []
    classpath = os.pathsep.join(map(str, sorted(jars_of(POM).glob("*.jar"))))
    return ["java", *JVM, *known, *options, "-cp", classpath, *map(str, arguments)]


def cause_in(said: str) -> str:
    """Returns the line of Maven's output that names the cause, or else its first error. The other lines say what to try."""
    lines = said.strip().splitlines() or ["it says nothing"]
    errors = [line for line in lines if line.startswith("[ERROR]")]
    return next((line for line in lines if CAUSE.search(line)), (errors or lines)[0])


def jars_of(pom: Path) -> Path:
    return BUILD / pom.stem


FORMATTED = jars_of(POM) / "formatted"
CLASSES = jars_of(POM) / "classes.jsa"


def _complete(pom: Path) -> bool:
    try:
        return (jars_of(pom) / "complete").read_text() == pom.read_text() and (pom != POM or FORMATTED.is_dir())
    except FileNotFoundError:
        return False


def free_port() -> int:
    """Returns a free port below the ephemeral range; within that range a client may connect to itself."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Broken(f"no free port of a hundred tried in {PORTS.start} to {PORTS.stop}")


def usual_port() -> int:
    """Returns the port that Kafka usually has if it is free, and otherwise a free one."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: one that has just ended does not hinder
        try:
            tried.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return free_port()
    return USUAL_PORT


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _identity() -> str:
    """Returns a version 4 UUID with its first bits cleared. In base64 it then begins with a letter, and does not look like an
    option."""
    return base64.urlsafe_b64encode(b"j" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


class Broker:
    """Runs one node on the loopback interface, with its data below `directory`. Start it from a thread that outlives it.

    settings: more lines of server.properties, over the others.
    listeners: security protocols of more listeners, each with a port of its own (see address_of).
    jvm: more options of java.
    joins: the node whose cluster it joins, to keep replicas; otherwise it makes a cluster of its own. session_seconds: how
    long it may be silent before its controller takes it for dead; with a long time a busy machine does it no harm.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        port: int = 0,
        *,
        joins: Broker | None = None,
        session_seconds: float = SESSION_SECONDS,
        settings: Mapping[str, str] = {},
        listeners: Sequence[str] = (),
        jvm: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        self._settings = dict(settings)
        self._ports = {protocol: free_port() for protocol in listeners}
        self._jvm = jvm
        self._session_seconds = session_seconds
        self.port = port or free_port()
        self.node = 1 if joins is None else joins.node + 1
        self._controller_port: int = free_port() if joins is None else joins._controller_port
        self._cluster: str = _identity() if joins is None else joins._cluster
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def address_of(self, protocol: str) -> str:
        """Returns the address of the listener with this security protocol."""
        return f"127.0.0.1:{self._ports[protocol]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self, *, wait: bool = True) -> Broker:
        """Starts a new broker, or the same one again after it was killed or stopped."""
        fetch()
        self.run()
        if wait:
            self.wait_until_ready()
        return self

    def run(self) -> None:
        """Starts the process."""
        properties = self._write_properties()
        if not self.data.exists():
            self._format()
        with open(self.log, "ab") as log:
            self._started_at = log.tell()
            self._process = subprocess.Popen(
                java("kafka.Kafka", properties, options=self._jvm),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - it takes no lock
                start_new_session=True,
            )

    def _write_properties(self) -> Path:
        more = [f"{protocol}://{self.address_of(protocol)}" for protocol in self._ports]
        listeners = ",".join([f"PLAINTEXT://{self.address}", *more])
        protocols = ",".join(f"{protocol}:{protocol}" for protocol in ("PLAINTEXT", *self._ports))
        controls = self.node == 1
        settings = {
            **SETTINGS,
            "broker.session.timeout.ms": str(int(self._session_seconds * 1000)),
            "broker.heartbeat.interval.ms": str(int(min(self._session_seconds / 15, 2) * 1000)),
            "process.roles": "broker,controller" if controls else "broker",
            "node.id": str(self.node),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners + f",CONTROLLER://127.0.0.1:{self._controller_port}" * controls,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            **self._settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self) -> None:
        shutil.copytree(FORMATTED, self.data)
        own = {"version": 1, "cluster.id": self._cluster, "node.id": self.node, "directory.id": _identity()}
        (self.data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in own.items()))

    def format_anew(self, *options: str) -> None:
        """Formats the data directory with Kafka's own program, which takes these options."""
        command = java("kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", self._write_properties(), *options)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Broken(f"the broker's storage could not be formatted: {(done.stdout + done.stderr)[-2000:]}")

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._says("Kafka Server started"):
            assert self._process is not None, "not started"
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise Broken(f"the broker did not start; the end of its log: {self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def _says(self, text: str) -> bool:
        with open(self.log, "rb") as log:
            log.seek(self._started_at)
            return text.encode() in log.read()

    def kill(self) -> None:
        """Sends SIGKILL: data that the broker had not written to the page cache is lost."""
        self._end(signal.SIGKILL)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stops the broker in order, which takes a second. A broker that does not end is killed."""
        self._end(signal.SIGTERM, seconds)

    def _end(self, number: signal.Signals, seconds: float = STOP_SECONDS) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay open, and the broker does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Broker:  # noqa: PYI034
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="kafka-broker",
        description="Runs a small Apache Kafka on this machine: until Ctrl-C, or as long as COMMAND runs, which finds its "
        "address in $KAFKA. Data lies in a temporary directory, which is removed, or in --dir, which is kept.",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="of the loopback interface (default: 9092 if it is free and no COMMAND is given, otherwise a free one)",
    )
    parser.add_argument("--dir", type=Path, help="where its data lies, and is found again the next time")
    parser.add_argument(
        "--fetch", nargs="*", type=Path, metavar="POM", help="only fetch what it needs, or the jars that these files name"
    )
    parser.add_argument("--check", action="store_true", help="only say what this machine lacks")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        if options.check:
            check_machine()
            return 0
        if options.fetch is not None:
            for pom in options.fetch or [POM]:
                fetch(pom)
            return 0
        fetch()
        port = options.port or (free_port() if options.command else usual_port())
        if options.dir:
            return _run(Broker(options.dir, port), options.command)
        with tempfile.TemporaryDirectory(prefix="kafka-broker-", ignore_cleanup_errors=True) as directory:
            return _run(Broker(directory, port), options.command)
    except (Missing, Broken) as error:
        print(f"kafka-broker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


@contextmanager
def _counting(what: str) -> Iterator[None]:
    """Prints a line every few seconds until the block ends, so that a slow machine is not silent."""
    began, ended = time.monotonic(), threading.Event()

    def count() -> None:
        while not ended.wait(QUIET_SECONDS):
            print(f"{time.monotonic() - began:5.0f} s  {what} …", file=sys.stderr)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        yield
    finally:
        ended.set()
        counter.join()


def _run(broker: Broker, command: list[str]) -> int:
    try:
        with _counting("a Kafka broker starts"):
            broker.start()
        if command:
            return subprocess.run(command, env={**os.environ, "KAFKA": broker.address}, check=False).returncode
        print(f"kafka://{broker.address}", flush=True)
        print("Ctrl-C ends it", file=sys.stderr)
        signal.pause()
        return 0
    finally:
        broker.stop()


if __name__ == "__main__":
    sys.exit(main())
