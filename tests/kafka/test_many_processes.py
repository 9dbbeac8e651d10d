"""`jlogtool mirror run` has a process for each mirror: they die, hang and end, and the others go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kafka_broker import free_port
from prometheus_client import CollectorRegistry, generate_latest

import jlog
from jlog.flow import stats
from jlog.flow.metrics import FlowCollector
from jlog.kafka import Mirrors, supervisor
from kafka.processes import fill, running
from kafka.web import answer
from kafka.witness import numbered
from patience import wait_until


@pytest.fixture
def file(tmp_path, broker, topic):
    """Asks for a mirror of each journal in the directory `in`, which has two: a and b."""
    for name in ("a", "b"):
        fill(tmp_path / "in" / name, 100)
    return write_file(tmp_path, broker, topic)


def write_file(tmp_path, broker, topic, more="", kafka=""):
    path = tmp_path / "mirrors.toml"
    path.write_text(f"""
        [kafka]
        {kafka}

        [[to-kafka]]
        journals = "{tmp_path}/in/*"
        url = "kafka://{broker.address}"
        topic = "{topic}.{{name}}"
        {more}
    """)
    return path


def children(pid):
    """The processes that this one has started, by the names of their mirrors."""
    found = {}
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            arguments = command(child)
            if len(arguments) > 3:
                found[arguments[3]] = child
    return found


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except FileNotFoundError:
        return []


def child(pid, journal):
    """The process that mirrors this journal, once it is there."""
    found = []

    def is_there():
        found[:] = [child for name, child in children(pid).items() if name.startswith(f"{journal} to ")]
        return found

    wait_until(is_there)
    return found[0]


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def is_mirrored(witness, topic, count=100):
    return witness.exists(topic) and witness.values(topic) == numbered(count)


def test_a_mirror_whose_process_is_killed_is_started_again_and_the_other_goes_on(processes, file, witness, topic, tmp_path):
    supervisor = processes("run", file, patient=True)
    for name in ("a", "b"):
        wait_until(lambda name=name: is_mirrored(witness, f"{topic}.{name}"))
    killed, other = child(supervisor.pid, tmp_path / "in" / "a"), child(supervisor.pid, tmp_path / "in" / "b")
    os.kill(killed, signal.SIGKILL)
    for name in ("a", "b"):
        fill(tmp_path / "in" / name, 100, 100)
    for name in ("a", "b"):
        wait_until(lambda name=name: is_mirrored(witness, f"{topic}.{name}", 200))
    assert child(supervisor.pid, tmp_path / "in" / "a") != killed
    assert child(supervisor.pid, tmp_path / "in" / "b") == other
    code, said = supervisor.end()
    assert (code, said.count("\n"), "was killed by signal 9; it is started again" in said) == (0, 1, True), said


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped"])
def test_no_process_outlives_a_killed_supervisor(processes, file, witness, topic, tmp_path, is_stopped):
    """A stopped one could not read from a pipe that its supervisor is gone."""
    supervisor = processes("run", file)
    for name in ("a", "b"):
        wait_until(lambda name=name: is_mirrored(witness, f"{topic}.{name}"))
    pids = [child(supervisor.pid, tmp_path / "in" / name) for name in ("a", "b")]
    if is_stopped:
        os.kill(pids[0], signal.SIGSTOP)
    supervisor.kill()
    for pid in pids:
        wait_until(lambda pid=pid: has_ended(pid))


def test_sigterm_ends_all_processes_also_one_that_hangs(processes, file, witness, topic, tmp_path):
    supervisor = processes("run", file)
    for name in ("a", "b"):
        wait_until(lambda name=name: is_mirrored(witness, f"{topic}.{name}"))
    pids = [child(supervisor.pid, tmp_path / "in" / name) for name in ("a", "b")]
    os.kill(pids[0], signal.SIGSTOP)
    code, said = supervisor.end()
    assert (code, said.count("\n"), "does not end, and is killed" in said) == (0, 1, True), said
    assert all(map(has_ended, pids))


def test_sigterm_leaves_no_transaction_open(processes, broker, witness, topic, tmp_path):
    """Records of others after an open transaction could not be read for as long as that may last."""
    fill(tmp_path / "in" / "a", 100_000)
    file = write_file(tmp_path, broker, topic, 'settings = { "linger.ms" = "10" }')
    supervisor = processes("run", file, patient=True)
    wait_until(lambda: witness.has_leaders(f"{topic}.a", 1) and witness.end(f"{topic}.a") > 1)
    assert supervisor.end() == (0, "")
    witness.produce(f"{topic}.a", [b"of another"])
    values = witness.values(f"{topic}.a")
    assert values == [*numbered(len(values) - 1), b"of another"]


def test_what_a_process_prints_before_it_begins_is_not_taken_for_a_report(file, topic, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    mirrors = Mirrors(file, until_end=True)
    mirrors.run()
    assert mirrors.failures == {}
    assert [flow.stats.records for flow in mirrors.flows.values()] == [100, 100]


def test_a_process_that_hangs_is_down_and_holds_up_no_answer(file, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(stats, "LOOK_EVERY", 0.5)
    mirrors = Mirrors(file, lags=True)
    collector = FlowCollector(mirrors.flows)
    registry = CollectorRegistry()
    registry.register(collector)

    def metrics():
        return generate_latest(registry).decode()

    hangs, goes_on = (next(name for name in mirrors_by_name(mirrors) if f"/in/{one} to" in name) for one in ("a", "b"))
    with running(mirrors):
        wait_until(lambda: collector.not_ready() == [] and len(mirrors.flows) == 2)
        wait_until(lambda: f'jlog_mirror_lag_records{{mirror="{hangs}"}} 0.0' in metrics())
        os.kill(child(os.getpid(), tmp_path / "in" / "a"), signal.SIGSTOP)
        wait_until(lambda: f'jlog_mirror_up{{mirror="{hangs}"}} 0.0' in metrics())
        assert f'jlog_mirror_up{{mirror="{goes_on}"}} 1.0' in metrics()
        assert f'jlog_mirror_records_total{{mirror="{hangs}"}} 100.0' in metrics()
        (line,) = collector.not_ready()
        assert line.startswith(f"{hangs}: its process has not answered for ")
        wait_until(lambda: f'jlog_mirror_lag_records{{mirror="{hangs}"}}' not in metrics())
        os.kill(child(os.getpid(), tmp_path / "in" / "a"), signal.SIGCONT)
        wait_until(lambda: collector.not_ready() == [])
    collector.close()


def mirrors_by_name(mirrors):
    return [job.name for job in mirrors.jobs()]


def test_all_answer_at_one_port(processes, file, broker, topic, tmp_path):
    gone = add_a_capture_of_nothing(file, broker, topic, tmp_path)
    port = free_port()
    supervisor = processes("run", "--metrics", f"127.0.0.1:{port}", file, patient=True)

    def only_the_capture_has_failed():
        problems = answer(port, "/readyz")[1].splitlines()
        return len(problems) == 1 and problems[0].startswith(f"{gone}: ") and "there is no such topic" in problems[0]

    wait_until(only_the_capture_has_failed)
    assert answer(port, "/readyz")[0] == 503
    assert answer(port, "/healthz")[0] == 200
    metrics = answer(port, "/metrics")[1]
    up = [line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith("jlog_mirror_up{")]
    assert sorted(up) == ["0.0", "1.0", "1.0"]
    assert len(children(supervisor.pid)) == 2
    code, said = supervisor.end()
    assert (code, said.count("\n"), gone in said) == (1, 1, True), said


def add_a_capture_of_nothing(file, broker, topic, tmp_path):
    """Of a topic that is not there: an error that stays, so that it is not started again. Returns its name."""
    with open(file, "a") as more:
        more.write(f'[[from-kafka]]\nurl = "kafka://{broker.address}"\ntopics = "{topic}"\njournal = "{tmp_path}/out"\n')
    return f"kafka://{broker.address}/{topic} to {tmp_path}/out"


def test_sigterm_hides_no_failure_that_comes_with_it(processes, file, broker, topic, tmp_path):
    gone = add_a_capture_of_nothing(file, broker, topic, tmp_path)
    supervisor = processes("run", file, patient=True)
    wait_until(lambda: gone in children(supervisor.pid))
    pid = children(supervisor.pid)[gone]
    wait_until(lambda: has_ended(pid) or len(os.listdir(f"/proc/{pid}/task")) > 1)  # it reports: it has been given all
    supervisor.pause()
    wait_until(lambda: has_ended(pid))
    code, said = supervisor.end()
    assert (code, said.count("\n"), gone in said) == (1, 1, True), said


def test_settings_are_neither_in_the_arguments_nor_in_the_environment_of_a_process(
    processes, broker, topic, tmp_path, monkeypatch
):
    fill(tmp_path / "in" / "a", 1)
    (tmp_path / "password").write_text("geheim3")
    monkeypatch.setenv("JLOG_KAFKA_SASL_PASSWORD", "geheim1")
    kafka = f'"ssl.key.password" = "geheim2"\n"sasl.oauthbearer.client.secret.file" = "{tmp_path}/password"'
    supervisor = processes("run", write_file(tmp_path, broker, topic, kafka=kafka))
    pid = child(supervisor.pid, tmp_path / "in" / "a")
    shown = " ".join(command(pid)) + Path(f"/proc/{pid}/environ").read_text()
    assert "PATH=" in shown
    assert "geheim" not in shown
    assert "JLOG_KAFKA" not in shown
    assert supervisor.end()[0] == 0


def test_the_settings_of_the_environment_reach_the_processes(broker, topic, tmp_path, monkeypatch):
    fill(tmp_path / "in" / "a", 1)
    monkeypatch.setenv("JLOG_KAFKA_SECURITY_PROTOCOL", "nonsense")
    mirrors = Mirrors(write_file(tmp_path, broker, topic), until_end=True)
    mirrors.run()
    assert [str(error).count("nonsense") > 0 for error in mirrors.failures.values()] == [True]


def test_one_that_dies_again_and_again_ends_where_it_has_an_end(broker, topic, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", (0.01, 0.02))
    fill(tmp_path / "in" / "a", 1)
    (tmp_path / "deadly.py").write_text("import os\n\ndef die(record):\n    os._exit(7)\n")
    monkeypatch.chdir(tmp_path)
    mirrors = Mirrors(write_file(tmp_path, broker, topic, 'transform = "deadly:die"'), until_end=True)
    mirrors.run()
    (failure,) = mirrors.failures.values()
    assert isinstance(failure, jlog.JournalError)
    assert str(failure) == "its process ended with exit code 7, 5 times in a row"


def test_a_new_journal_is_mirrored_while_it_runs(processes, file, witness, topic, tmp_path):
    supervisor = processes("run", file, patient=True)
    wait_until(lambda: is_mirrored(witness, f"{topic}.a"))
    fill(tmp_path / "in" / "c", 100)
    wait_until(lambda: is_mirrored(witness, f"{topic}.c"))
    assert supervisor.end() == (0, "")


def test_a_file_in_the_working_directory_takes_the_place_of_no_module(broker, witness, topic, tmp_path, monkeypatch):
    for name in ("pickle", "marshal", "signal", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    fill(tmp_path / "in" / "a", 100)
    monkeypatch.chdir(tmp_path)
    mirrors = Mirrors(write_file(tmp_path, broker, topic), until_end=True)
    mirrors.run()
    assert mirrors.failures == {}
    assert is_mirrored(witness, f"{topic}.a")
