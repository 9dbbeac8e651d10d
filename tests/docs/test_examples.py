"""docs/examples: the one command of each example runs, and its proof holds. The proof fails where the program is wrong."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_broker import Missing, fetch

from docs.console import DOCS
from patience import HUNG_SECONDS

EXAMPLES = DOCS / "examples"
SPARK_SECONDS = 1_500.0  # guards against hanging only; Java starts twice, and Spark may have to try again on a busy machine


def run(example: Path, folder: Path, seconds: float = HUNG_SECONDS) -> subprocess.CompletedProcess[str]:
    """Runs it as its README says. What it leaves is in `folder`. Where the test is interrupted, Ctrl-C lets it end the
    processes that it has started."""
    command = [sys.executable, example / "run.py", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def check_proved(done: subprocess.CompletedProcess[str], proof: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == proof


def check_shown(example: str, proof: str) -> None:
    assert f"\n{proof}\n```" in (EXAMPLES / example / "README.md").read_text()


def spoiled(example: str, folder: Path, file: str, right: str, wrong: str) -> Path:
    """Returns a copy of the example in which a line is wrong."""
    copy = shutil.copytree(EXAMPLES / example, folder / example)
    text = (copy / file).read_text()
    assert text.count(right) == 1
    (copy / file).write_text(text.replace(right, wrong))
    return copy


PROOFS = {
    "outbox": "each order is in the journal exactly once, in the order of the database",
    "work-queue": "each job is done, or a dead letter",
    "web-ingest": "2000 events are in the journal, each exactly once, where its answer said and in its client's order",
}


@pytest.mark.parametrize("example", PROOFS)
def test_an_example_proves_what_its_page_shows(example: str, tmp_path: Path) -> None:
    check_proved(run(EXAMPLES / example, tmp_path / "run"), PROOFS[example])
    check_shown(example, PROOFS[example])


@pytest.fixture
def _own_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the example start a broker."""
    try:
        fetch()
    except Missing as missing:
        pytest.skip(str(missing))
    monkeypatch.delenv("KAFKA", raising=False)


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka-examples")
@pytest.mark.usefixtures("_own_broker")
def test_each_line_that_was_logged_is_in_kafka_once(tmp_path: Path) -> None:
    proof = "each line is in the topic exactly once, in the order of its process"
    check_proved(run(EXAMPLES / "logging-to-kafka", tmp_path / "run"), proof)
    check_shown("logging-to-kafka", proof)


@pytest.mark.exhaustive
@pytest.mark.kafka
@pytest.mark.xdist_group("kafka-examples")
@pytest.mark.usefixtures("_own_broker")
def test_messages_of_killed_mirrors_are_in_kafka_for_those_who_read_uncommitted(tmp_path: Path) -> None:
    """So the mirrors were killed at the moment that the example is about."""
    level = ('"isolation.level": "read_committed"', '"isolation.level": "read_uncommitted"')
    copy = spoiled("logging-to-kafka", tmp_path / "docs" / "examples", "prove.py", *level)
    (tmp_path / "tools").symlink_to(DOCS.parent / "tools")
    done = run(copy, tmp_path / "run")
    assert (done.returncode, done.stderr) == (1, "FAILED: the topic does not have each line once and in order\n"), done.stdout


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.xdist_group("spark-processes")
@pytest.mark.timeout(SPARK_SECONDS + 50)
@pytest.mark.parametrize("example", ["tail-into-spark", "declarative-pipeline"])
def test_each_record_is_a_row_in_spark_once(example: str, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java; apt-get install --no-install-recommends default-jre-headless")
    check_proved(run(EXAMPLES / example, tmp_path / "run", SPARK_SECONDS), "each record is a row exactly once")
    check_shown(example, "each record is a row exactly once")


WRONG = {
    # A relay that does not look which rows are in the journal already.
    "outbox": ("relay.py", 'json.loads(jlog.Journal(journal_path).state().get(STATE_KEY, b"[]"))', "[]"),
    # A worker that finishes a job before it does it.
    "work-queue": ("worker.py", "worker.run(do)", "worker.run(lambda task: task.ack() or do(task))"),
    # A server that does not know the events of the one before it.
    "web-ingest": ("server.py", "id=event_id", "headers={'jlog.id': event_id}"),
}


@pytest.mark.parametrize("example", WRONG)
def test_the_proof_of_an_example_fails_where_its_program_is_wrong(example: str, tmp_path: Path) -> None:
    done = run(spoiled(example, tmp_path, *WRONG[example]), tmp_path / "run")
    assert (done.returncode, done.stderr.splitlines()[-1][:8]) == (1, "FAILED: "), done.stdout + done.stderr


def test_the_page_lists_each_example() -> None:
    page = (DOCS / "examples.md").read_text()
    names = sorted(path.name for path in EXAMPLES.iterdir())
    assert [name for name in names if f"examples/{name}/README.md" not in page] == []
    assert [name for name in names if f"\nexamples/{name}/README\n" not in page] == []
