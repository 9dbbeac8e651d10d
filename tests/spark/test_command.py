"""`jlogtool pipeline`, as its users start and end it: a process, with a virtual machine of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

import exhaustive
import jlog
from cli.command import run as run_command
from cli.command import run_afresh
from patience import HUNG_SECONDS
from spark.sessions import QUICK_JAVA

KILLS = exhaustive.count(1, 4)
QUICK = ["--conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}"]

pytestmark = pytest.mark.usefixtures("_spark_environment")


def start(*arguments: Any) -> subprocess.Popen[bytes]:
    """Starts it in a group of processes of its own, so that it can be killed with its virtual machine."""
    command = [
        sys.executable,
        "-m",
        "jlog.pipeline",
        *map(str, arguments),
        *QUICK,
        "--master",
        "local[2]",
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """It must exit with 0; returns its summary, which is all that it prints."""
    out, err = process.communicate(timeout=HUNG_SECONDS)
    assert (process.returncode, err.decode()) == (0, "")
    summary: dict[str, Any] = json.loads(out)
    return summary


def wait_until(holds: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + HUNG_SECONDS
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def sequences(directory: Path) -> list[int]:
    found = pyarrow.dataset.dataset(str(directory), format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["sequence"]).column("sequence").to_pylist())


def fill(path: Path, records: int) -> None:
    values = [b'{"n": %d}' % number if number % 10 else b"bad %d" % number for number in range(records)]
    with jlog.Writer(path) as writer:
        for first in range(0, records, 10_000):
            writer.extend(values[first : first + 10_000])


def to_one(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def to_all(process: subprocess.Popen[bytes]) -> None:
    """As a service manager does: the virtual machine, and the workers, end in the same moment."""
    os.killpg(process.pid, signal.SIGTERM)


def ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """As a terminal does."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_batch_after_an_idle_time_is_reported_at_once_and_with_its_own_time(tmp_path: Path) -> None:
    """Spark reports the progress of an idle query too, under the number of the next batch."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    fill(journal, 100)
    often = "spark.sql.streaming.noDataProgressEventInterval=100ms"
    process = start(journal, lake, "--trigger", "1s", "--progress", "--conf", often)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["batch"] == 0
        time.sleep(5)  # nothing shows when Spark has reported the progress of an idle query
        appended = datetime.now(timezone.utc)
        fill(journal, 50)
        told = json.loads(process.stdout.readline())
        assert (told["batch"], told["records_in"]) == (1, 50)
        began = datetime.fromisoformat(told["time"].replace("Z", "+00:00"))
        assert began + timedelta(seconds=told["seconds"]) > appended
        to_one(process)
        assert finish(process)["records_in"] == 150
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", [to_one, exhaustive.only(ctrl_c), exhaustive.only(to_all)])
def test_a_signal_ends_it_with_the_summary_and_it_goes_on_later(
    tmp_path: Path, end: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    fill(journal, 1_000)
    process = start(journal, lake, "--parse", "json", "--trigger", "1s")
    try:
        wait_until(lambda: list(lake.glob("date=*/*.parquet")), process)
        end(process)
        found = finish(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert found["stopped"]
    fill(journal, 500)
    later = finish(start(journal, lake, "--parse", "json"))
    assert found["records_in"] + later["records_in"] >= 1_500
    good, bad = sequences(lake), sequences(tmp_path / "lake.quarantine")
    assert sorted(good + bad) == list(range(1_500))
    assert len(bad) == 150


LATE = """#!/bin/sh
case "$*" in *python_streaming_source_runner*) if mkdir {told}; then sleep 12; fi ;; esac
exec {python} "$@"
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_python_worker_that_starts_too_late_costs_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark waits ten seconds for one."""
    python, told = tmp_path / "python", tmp_path / "told"
    python.write_text(LATE.format(told=told, python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    fill(tmp_path / "journal", 100)
    summary = finish(start(tmp_path / "journal", tmp_path / "lake"))
    assert told.is_dir()
    assert summary["records_out"] == 100
    assert sequences(tmp_path / "lake") == list(range(100))


@pytest.mark.exhaustive
@pytest.mark.timeout(1_800)
def test_kills_at_any_time_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """While records are appended, and small batches are moved one after the other."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    dice = random.Random(7)
    records = exhaustive.count(20_000, 100_000)  # before each kill half as many come
    arguments = [journal, lake, "--parse", "json", "--batch-records", records // 3]
    fill(journal, records)
    for _ in range(KILLS):
        before = len(list(lake.glob("date=*/*.parquet")))
        fill(journal, records // 2)
        process = start(*arguments, "--trigger", "1s")
        try:
            wait_until(lambda n=before: len(list(lake.glob("date=*/*.parquet"))) > n, process)  # type: ignore[misc]
            time.sleep(dice.uniform(0, 1.5))  # where in its work it is hit
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    finish(start(*arguments))
    found = Counter(sequences(lake) + sequences(tmp_path / "lake.quarantine"))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(records + KILLS * records // 2))
    assert [entry.name for entry in lake.glob("_*")] == ["_jlog"]


def test_a_journal_that_is_not_there_is_said_before_java_starts(tmp_path: Path) -> None:
    result = run_command("pipeline", tmp_path / "nothing", tmp_path / "lake")
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)
    assert str(tmp_path / "nothing") in result.err


@pytest.mark.parametrize(
    "options",
    [
        ["--parse", "regex"],
        ["--trigger", "often"],
        ["--conf", "x"],
        ["--parse", "regex", "--pattern", "(?<a>"],
        ["--until", "1h", "--trigger", "10s"],
    ],
)
def test_options_that_do_not_go_together_are_errors_of_usage(tmp_path: Path, options: list[str]) -> None:
    jlog.Journal.create(tmp_path / "journal")
    result = run_command("pipeline", tmp_path / "journal", tmp_path / "lake", *options)
    assert (result.code, result.out) == (2, b"")
    assert not (tmp_path / "lake").exists()


def test_a_topic_has_no_end_to_give(tmp_path: Path) -> None:
    result = run_command("pipeline", "--until", "1h", "kafka://127.0.0.1:9/orders", tmp_path / "lake")
    assert (result.code, result.out) == (2, b"")
    assert (
        "--until is not for kafka://127.0.0.1:9/orders: Spark reads a topic up to its present end; leave it out" in result.err
    )


@pytest.mark.parametrize("option", ["--subscriber", "--journal-pattern"])
def test_options_that_no_topic_has_are_refused(tmp_path: Path, option: str) -> None:
    result = run_command("pipeline", option, "lake", "kafka://127.0.0.1:9/orders", tmp_path / "lake")
    assert (result.code, result.out) == (2, b"")
    assert f"{option} " in result.err
    assert "leave it out" in result.err


def test_a_subscriber_of_an_archive_is_refused_at_once(tmp_path: Path) -> None:
    url = (tmp_path / "archive").as_uri()
    with jlog.Writer(tmp_path / "journal", retention=jlog.Retention(archive=url)) as writer:
        writer.append(b"1")
        writer.roll()
    jlog.Journal(tmp_path / "journal").archive()
    result = run_command("pipeline", "--subscriber", "lake", url, tmp_path / "lake")
    assert (result.code, result.out) == (2, b"")
    assert f"{url} cannot have one: leave it out" in result.err


def test_without_java_it_says_the_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jlog.Journal.create(tmp_path / "journal")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    result = run_command("pipeline", tmp_path / "journal", tmp_path / "lake")
    assert (result.code, result.err.count("\n"), "apt-get install" in result.err) == (1, 1, True)


def test_a_spark_connect_server_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jlog.Journal.create(tmp_path / "journal")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:9")
    result = run_command("pipeline", tmp_path / "journal", tmp_path / "lake")
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)
    assert "SPARK_REMOTE is set to sc://127.0.0.1:9" in result.err
    monkeypatch.delenv("SPARK_REMOTE")
    result = run_command("pipeline", tmp_path / "journal", tmp_path / "lake", "--master", "sc://127.0.0.1:9")
    assert (result.code, result.out, result.err.count("\n")) == (1, b"", 1)
    assert "the master is sc://127.0.0.1:9, and a Spark Connect server cannot run this" in result.err


def test_a_virtual_machine_that_is_killed_is_named_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"%d" % number for number in range(100)])
    process = start(tmp_path / "journal", tmp_path / "lake", "--trigger", "1s", "--progress")
    assert process.stdout is not None
    assert process.stdout.readline()  # the first batch is done
    threads = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(pid) for thread in threads for pid in thread.read_text().split()]
    (java,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n")
    os.kill(java, signal.SIGKILL)
    _, err = process.communicate(timeout=HUNG_SECONDS)
    assert process.returncode == 1
    assert "Java, in which Spark runs, has ended" in err.decode().splitlines()[-1]
    assert "Spark's log: " in err.decode()
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"later")
    assert finish(start(tmp_path / "journal", tmp_path / "lake"))["records_in"] == 1


def test_the_time_zones_of_the_host_and_of_sparks_settings_change_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.sql.session.timeZone America/New_York\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    late = datetime(2025, 12, 31, 23, 30, tzinfo=timezone.utc)
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b'{"at": "2026-01-31T23:30:00", "day": "2026-01-31"}', timestamp_us=int(late.timestamp()) * 1_000_000)
    options = ["--parse", "json", "--schema", "at timestamp, day date", "--partition-by", "date", "--partition-by", "hour"]
    assert finish(start(*options, tmp_path / "journal", tmp_path / "lake"))["records_out"] == 1
    (row,) = pyarrow.dataset.dataset(str(tmp_path / "lake"), format="parquet", partitioning="hive").to_table().to_pylist()
    assert (str(row["date"]), int(row["hour"]), row["timestamp"]) == ("2025-12-31", 23, late)
    assert (row["at"], str(row["day"])) == (datetime(2026, 1, 31, 23, 30, tzinfo=timezone.utc), "2026-01-31")


@pytest.mark.exhaustive
def test_a_quarantine_of_everything_is_reported(tmp_path: Path) -> None:
    """The pipeline itself ends well, so a warning on stderr is all that shows it."""
    fill(tmp_path / "journal", 3)
    process = start("--parse", "logfmt", tmp_path / "journal", tmp_path / "lake")
    out, err = process.communicate(timeout=HUNG_SECONDS)
    assert (process.returncode, json.loads(out)["records_bad"]) == (0, 3)
    assert err.count(b"\n") == 1
    assert b"all 3 records of this run have gone to the quarantine" in err


def test_without_pyspark_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module before the installed one on the path behaves as if there were none."""
    jlog.Journal.create(tmp_path / "journal")
    (tmp_path / "pyspark.py").write_text('raise ModuleNotFoundError("No module named pyspark", name="pyspark")\n')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    result = run_afresh("pipeline", tmp_path / "journal", tmp_path / "lake")
    assert (result.code, result.err.count("\n"), "pip install 'pyjlog[spark]'" in result.err) == (1, 1, True)


def test_a_topic_without_sparks_kafka_source_says_what_to_add(tmp_path: Path) -> None:
    process = start("kafka://127.0.0.1:9/orders", tmp_path / "lake")
    out, err = process.communicate(timeout=HUNG_SECONDS)
    assert (process.returncode, out) == (1, b"")
    assert b"--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:" in err


ENDING_JAVA = """#!/bin/sh
cat >&2 <<'END'
Exception in thread "main" java.lang.ExceptionInInitializerError
\tat org.apache.spark.util.Utils$.localHostName(Utils.scala:1015)
Caused by: java.net.UnknownHostException: HOST: HOST: Name or service not known
\tat java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1936)
END
exit 1
"""


def test_a_java_that_ends_at_once_is_reported_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own error says only that it ended."""
    jlog.Journal.create(tmp_path / "journal")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for host, advice in ((socket.gethostname(), True), ("elsewhere.invalid", False)):
        java.write_text(ENDING_JAVA.replace("HOST", host))
        java.chmod(0o755)
        result = run_afresh("pipeline", tmp_path / "journal", tmp_path / "lake")
        cause = f"java.net.UnknownHostException: {host}: {host}: Name or service not known; "
        more = f"add this host's own name to /etc/hosts: 127.0.1.1 {host}; " if advice else ""
        assert (result.code, f"{cause}{more}Spark's log: {tmp_path}" in result.err) == (1, True), result.err
