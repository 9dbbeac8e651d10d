"""The one place that decides which tests `make test` leaves out, so that it takes a quarter of an hour at most.

The files in SLOW take minutes. They run with --slow, and where tests are named. The tests with the marker `exhaustive` take
hours. With --changed, which `.ci/run` gives, the slow files run, and the exhaustive tests of the code that has changed. With
--exhaustive, which `make test-all` gives, all tests run.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SLOW_TOO = "run also the tests that take minutes"
ALL = "run also the tests that take minutes or hours: every kill, every state of the models, every moment of a power loss"
CHANGED = "run also the tests that take minutes, and of those that take hours the ones of the code that this branch has changed"
LIMIT_SECONDS = 1_800  # for each exhaustive test, against hanging; the limit of pyproject.toml is too short for some
ROOT = Path(__file__).resolve().parents[1]
# Nearly all of these start a Java virtual machine or a secured cluster, stop calls at every moment, damage every byte, or run
# the programs of the manual.
SLOW = [
    "tests/behaviour/test_hostile_files.py",
    "tests/cli/test_console.py",
    "tests/cli/test_console_browser.py",
    "tests/cli/test_demo.py",
    "tests/crash/test_damage.py",
    "tests/crash/test_repair_kills.py",
    "tests/crash/test_torture.py",
    "tests/docs/test_examples.py",
    "tests/docs/test_layout.py",
    "tests/docs/test_pages.py",
    "tests/faults/test_calls.py",
    "tests/faults/test_failed_sync.py",
    "tests/faults/test_interrupted_reading.py",
    "tests/faults/test_one_at_a_time.py",
    "tests/faults/test_power_loss.py",
    "tests/faults/test_starved.py",
    "tests/installed",
    "tests/kafka/test_broker_faults.py",
    "tests/kafka/test_clients.py",
    "tests/kafka/test_cluster.py",
    "tests/kafka/test_command.py",
    "tests/kafka/test_command_topics.py",
    "tests/kafka/test_idle_connections.py",
    "tests/kafka/test_kills.py",
    "tests/kafka/test_leaderless.py",
    "tests/kafka/test_letters.py",
    "tests/kafka/test_logins.py",
    "tests/kafka/test_many_processes.py",
    "tests/kafka/test_memory.py",
    "tests/kafka/test_pages.py",
    "tests/kafka/test_pipeline.py",
    "tests/kafka/test_positions.py",
    "tests/kafka/test_rights.py",
    "tests/kafka/test_secured.py",
    "tests/kafka/test_standby.py",
    "tests/kafka/test_standby_hosts.py",
    "tests/kafka/test_takeover.py",
    "tests/kafka/test_topology.py",
    "tests/kafka/test_torture.py",
    "tests/kafka/test_unlucky_moments.py",
    "tests/libjlog/test_damage.py",
    "tests/libjlog/test_resume.py",
    "tests/processes/test_attachments.py",
    "tests/processes/test_leaks.py",
    "tests/property/test_arrow.py",
    "tests/property/test_journal_model.py",
    "tests/property/test_pushing.py",
    "tests/spark/pipeline",
    "tests/spark/tables",
    "tests/spark/test_archives.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_cluster_queries.py",
    "tests/spark/test_command.py",
    "tests/spark/test_demo.py",
    "tests/spark/test_faults.py",
    "tests/spark/test_pages.py",
    "tests/spark/test_sink_faults.py",
    "tests/spark/test_stream.py",
    "tests/spark/writing/test_exactly_once.py",
    "tests/spark/writing/test_ledger.py",
    "tests/spark/writing/test_restores.py",
    "tests/spark/writing/test_rows.py",
    "tests/weekly",
]
# The exhaustive tests of each part of the code, as far as they take ten minutes together. A changed file of tests runs its own.
# Those of more than PARTS_MAX parts take longer than CI may. The weekly run runs them all.
PARTS_MAX = 4
TESTS_OF = {
    "pyx/buffer/": ["tests/model", "tests/processes/test_stopped.py"],
    "pyx/append/": ["tests/model", "tests/processes"],
    "pyx/process/": ["tests/model", "tests/processes"],
    "pyx/write/": ["tests/model", "tests/processes"],
    "pyx/recover/": ["tests/faults", "tests/crash/test_damage.py"],
    "pyx/format/": ["tests/faults", "tests/behaviour/test_hostile_files.py"],
    "pyx/segments/": ["tests/crash/test_damage.py", "tests/behaviour/test_hostile_files.py"],
    "pyx/records/": ["tests/property/test_arrow.py", "tests/property/test_json.py"],
    "pyx/read/": ["tests/property"],
    "pyx/kafka/": ["tests/kafka/test_kills.py", "tests/kafka/test_memory.py"],
    "pyx/CMakeLists.txt": ["tests/installed"],
    "pyproject.toml": ["tests/installed"],
    "docs/": ["tests/docs/test_layout.py", "tests/kafka/test_pages.py", "tests/spark/test_pages.py"],
    "docs/examples/": ["tests/docs/test_examples.py"],
    "jlog/archive/": ["tests/property"],
    "jlog/care/": ["tests/property"],
    "jlog/storage/": ["tests/property"],
    "jlog/repair/": ["tests/crash/test_repair_anything.py"],
    "jlog/demo/": ["tests/spark/test_demo.py", "tests/cli/test_demo.py"],
    "jlog/flow/": ["tests/kafka/test_broker_faults.py", "tests/kafka/test_kills.py", "tests/kafka/test_letters.py"],
    "jlog/kafka/": ["tests/kafka/test_broker_faults.py", "tests/kafka/test_kills.py", "tests/kafka/test_secured.py"],
    "jlog/kafka/client/": ["tests/kafka/test_refusals.py", "tests/kafka/test_native.py", "tests/kafka/test_native_mirror.py"],
    "jlog/kafka/ends/": ["tests/kafka/test_refusals.py", "tests/kafka/test_mirror.py", "tests/kafka/test_capture.py"],
    "jlog/libjlog/": ["tests/libjlog"],
    "jlog/pipeline/": ["tests/spark/pipeline", "tests/spark/test_command.py", "tests/kafka/test_pipeline.py"],
    "jlog/pipeline/visibility.py": ["tests/spark/test_cluster.py"],
    "jlog/pipeline/tables/": ["tests/spark/tables/test_pipeline.py", "tests/spark/tables/test_connectors.py"],
    "jlog/spark/reading/": ["tests/spark/test_archives.py", "tests/spark/test_faults.py", "tests/docs/test_examples.py"],
    "jlog/spark/writing/": ["tests/spark/test_sink_faults.py", "tests/spark/writing"],
    "tools/model/": ["tests/model"],
}
_places: list[Path] = []  # the files and directories of tests that run exhaustively


def learn(config: pytest.Config) -> None:
    """Comes before any file of tests is imported."""
    all_are_asked_for = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    config.option.slow |= not all_are_asked_for or config.option.changed or config.option.exhaustive
    if config.getoption("--exhaustive"):
        _places[:] = [ROOT]
    elif config.getoption("--changed"):
        _places[:] = [ROOT / name for name in sorted(tests_of(changed_files()))]


def tests_of(changed: Iterable[str]) -> set[str]:
    """Returns the files and directories of tests that belong to these files; none if they concern more than PARTS_MAX parts."""
    names = list(changed)
    parts = [code for code in TESTS_OF if any(name.startswith(code) for name in names)]
    if len(parts) > PARTS_MAX:
        return set()
    return {tests for code in parts for tests in TESTS_OF[code]} | {name for name in names if name.startswith("tests/")}


def changed_files(root: Path = ROOT) -> list[str]:
    """Returns the files that differ from the commit at which this branch left main or, on main, from the commit before the
    last one. Without either, as in a checkout that has no history, there are none."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout.split() if done.returncode == 0 else []

    bases = git("merge-base", "HEAD", "origin/main") + git("rev-parse", "--verify", "HEAD~1")
    others = [base for base in bases if [base] != git("rev-parse", "HEAD")]
    return git("diff", "--name-only", others[0]) if others else []


def is_left_out(config: pytest.Config, path: Path) -> bool:
    """Returns whether this run passes over the file or directory."""
    return not config.option.slow and any(path == ROOT / name for name in SLOW)


def _is_wanted(file: Path) -> bool:
    return any(place in (file, *file.parents) for place in _places)


def count(usual: int, exhaustive: int) -> int:
    """How often something is done, or how many there are, in the file that asks."""
    return exhaustive if _is_wanted(Path(sys._getframe(1).f_code.co_filename)) else usual


def only(*values: Any, **more: Any) -> Any:
    """A parameter set of @pytest.mark.parametrize that only an exhaustive run has."""
    return pytest.param(*values, marks=pytest.mark.exhaustive, **more)


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that have the marker `exhaustive`, or gives them the time that they may take."""
    kept, left_out = [], []
    for item in items:
        if _is_wanted(item.path):
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS), append=False)  # before any limit of its own
        elif item.get_closest_marker("exhaustive"):
            left_out.append(item)
            continue
        kept.append(item)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)
