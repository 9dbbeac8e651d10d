"""Starts a Spark session for jlog's own programs: quiet, on this machine by default, with workers that find jlog."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from jlog.errors import JournalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NO_GATEWAY = "JAVA_GATEWAY_EXITED"
DYING_SECONDS = 5.0  # a virtual machine that is killed closes its connections before it has ended
JAVA_HAS_ENDED = (
    "Java, in which Spark runs, has ended: it was killed, which the kernel does when the machine is short of memory, or it has "
    "used up its own memory. Give it more, --conf spark.driver.memory=4g, or let a batch have fewer records. Then run it "
    "again: it goes on where it was"
)
CAUSED_BY = "Caused by: "
LATE_WORKER = "Python worker failed to connect back"
LOG_BYTES = 1 << 16  # that are looked at, of its end
_EXCEPTION = re.compile(r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b.*")
FIXED = {  # since other values would change what is in the tables
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # all readers but old versions of Hive read it
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # LEGACY moves days before 1582
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # for a value that has a field twice
}
ALWAYS = {**FIXED, "spark.sql.streaming.stopTimeout": "30s"}
UNLESS_SUBMITTED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.databricks.delta.snapshotPartitions": str(os.cpu_count() or 1),
}


def missing() -> str:
    """Returns the command that installs the missing parts of Spark; an empty text if nothing is missing."""
    if submitted():
        return ""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError:
        return "pip install 'pyjlog[spark]'"
    return "" if has_java() else INSTALL_JAVA


def check_installed() -> None:
    """Raises JournalError with that command."""
    command = missing()
    if command:
        raise JournalError(f"Spark is missing or incomplete; install it: {command}")


def submitted() -> bool:
    """Says whether spark-submit has started this program, and with it the virtual machine."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_settings() -> dict[str, str]:
    """Returns the settings that spark-submit was given."""
    if not submitted():
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


@contextmanager
def session(
    name: str, master: str | None = None, conf: Mapping[str, str] = {}, log: str | None = None
) -> Iterator[SparkSession]:
    """Starts the session. master: all cores of this machine, unless spark-submit names another. log: the file for the output of
    a virtual machine that it starts; None: stderr. Raises JournalError, with the command, where Java is missing, and ValueError
    for another value of a setting that is fixed."""
    check_installed()
    address = master or conf.get("spark.master", "")
    places = {
        "SPARK_REMOTE is set to": os.environ.get("SPARK_REMOTE"),
        "spark.remote is": conf.get("spark.remote"),
        "the master is": address if address.startswith("sc://") else None,
    }
    for said, url in places.items():
        if url:
            raise JournalError(
                f"{said} {url}, and a Spark Connect server cannot run this: leave it out, or unset it; name a cluster by its "
                "master, such as spark://HOST:7077"
            )
    _let_workers_find_us()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of Spark itself, about pandas for example
        from py4j.protocol import Py4JError, Py4JNetworkError
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(name)
        for option, value in _settings(master, conf).items():
            builder = builder.config(option, value)
        try:
            with _stderr_to(None if submitted() else log), _our_interrupt():
                spark = builder.getOrCreate()
        except Exception as error:  # any error of Java, or of a library that it loads
            raise JournalError(f"Spark does not start: {reason_of(error)}{_cause(error, log)}") from error
    has_ended = False
    try:
        yield spark
    except Exception as error:
        causes = error, error.__cause__, error.__context__
        is_cut_off = any(isinstance(cause, (ConnectionError, Py4JNetworkError)) for cause in causes)
        has_ended = _has_ended(spark, DYING_SECONDS if is_cut_off else 0)
        if has_ended:
            raise JournalError(JAVA_HAS_ENDED) from error
        raise
    finally:
        with warnings.catch_warnings(), suppress(OSError, Py4JError) if has_ended else nullcontext():
            warnings.simplefilter("ignore")  # a service manager may have ended the virtual machine in the same moment
            spark.stop()


def _has_ended(spark: SparkSession, seconds: float) -> bool:
    """Says whether the virtual machine that this process has started for Spark has ended, or ends within so many seconds."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        return process is not None and process.wait(seconds) is not None
    except subprocess.TimeoutExpired:
        return False


def is_late_worker(error: Exception) -> bool:
    """Says whether Spark has waited in vain for a Python worker to start."""
    return LATE_WORKER in str(error)


def reason_of(error: Exception) -> str:
    """Returns the message without the stack: that of a Python worker, if there is one, else that of Java, or the first line of
    Spark's own."""
    if is_late_worker(error):
        return (
            "a Python worker of Spark did not start within ten seconds, and Spark waits no longer: the machine is busy or "
            "short of memory. Run it again; it goes on where it was"
        )
    lines = str(error).splitlines()
    known = [line for line in lines if line.startswith(("jlog.errors.", "ValueError: ", "OSError: ", "ImportError: ", ": "))]
    if known:
        return known[-1].partition(": ")[2]
    return next((line for line in lines if line.strip()), type(error).__name__)


def _cause(error: Exception, log: str | None) -> str:
    """Returns the reason, from its log, why the virtual machine ended before Spark could speak with it."""
    if log is None or NO_GATEWAY not in str(error):
        return ""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - LOG_BYTES))
            lines = file.read().decode(errors="backslashreplace").splitlines()
    except OSError:
        return ""
    caused = [line for line in lines if line.startswith(CAUSED_BY)]
    errors = [found[0] for line in caused or lines if not line.startswith("\tat ") and (found := _EXCEPTION.search(line))]
    if not errors:
        return ""
    name = socket.gethostname()
    unknown = "UnknownHostException" in errors[-1] and name in errors[-1]
    advice = f"; add this host's own name to /etc/hosts: 127.0.1.1 {name}" if unknown else ""
    return f"; {errors[-1]}{advice}"


def _settings(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    for option, value in FIXED.items():
        if conf.get(option, value) != value:
            raise ValueError(
                f"{option} is always {value}, since another value would change what the tables hold; leave it out of --conf"
            )
    found = dict(ALWAYS)
    if not submitted():
        master = master or "local[*]"
        found |= UNLESS_SUBMITTED
        found |= LOCAL if master.startswith("local") else {}
    if master is not None:
        found["spark.master"] = master
    return {**found, **conf}


def _let_workers_find_us() -> None:
    """Sets the Python of Spark's workers. By itself Spark takes `python3`, which may not have jlog."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths and "site-packages" not in root:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])


@contextmanager
def _our_interrupt() -> Iterator[None]:
    """Keeps the handler of Ctrl-C: a session that starts puts its own one there, which raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _stderr_to(path: str | None) -> Iterator[None]:
    """Redirects stderr for the processes that are started meanwhile."""
    if path is None:
        yield
        return
    kept = os.dup(2)  # noqa: TID251 - stderr's, which is to come back
    try:
        with open(path, "ab", buffering=0) as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


INSTALL_JAVA = "apt-get install --no-install-recommends default-jre-headless"


def has_java() -> bool:
    """Says whether Spark would find a Java: on the path, or below JAVA_HOME."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and os.access(os.path.join(home, "bin", "java"), os.X_OK))
