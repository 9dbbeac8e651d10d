"""`pytest --changed`, by which CI chooses exhaustive tests: the files that have changed, and the tests that belong to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import exhaustive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits on its branch main."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name in ("first", "second"):
        commit(tmp_path, name)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=Tests", "-c", "user.email=tests@localhost")
    subprocess.run(["git", "-C", str(folder), *author, *words], check=True, capture_output=True)


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "--message", name)


def test_on_main_the_last_commit_is_the_change(repository: Path) -> None:
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert exhaustive.changed_files(repository) == ["second"]


def test_all_commits_of_a_branch_are_the_change(repository: Path) -> None:
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    for name in ("third", "fourth"):
        commit(repository, name)
    assert exhaustive.changed_files(repository) == ["fourth", "third"]


def test_a_checkout_without_history_has_no_change(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shallow = tmp_path_factory.mktemp("checkout")
    git(shallow, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    assert exhaustive.changed_files(shallow / "shallow") == []
    assert exhaustive.changed_files(shallow) == []


def test_the_map_of_code_to_tests_names_what_is_there() -> None:
    named = {*exhaustive.SLOW, *exhaustive.TESTS_OF, *(name for tests in exhaustive.TESTS_OF.values() for name in tests)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_changed_code_and_changed_tests_have_their_tests() -> None:
    assert exhaustive.tests_of(["tools/model/roll.py", "tests/crash/test_kills.py", "README.md"]) == {
        "tests/model",
        "tests/crash/test_kills.py",
    }


def test_a_change_of_many_parts_has_no_exhaustive_tests() -> None:
    """They would not end within the time of CI."""
    parts = sorted(exhaustive.TESTS_OF)[: exhaustive.PARTS_MAX + 1]
    assert exhaustive.tests_of([*parts, "tests/crash/test_kills.py"]) == set()
    assert exhaustive.tests_of(parts[:1]) == set(exhaustive.TESTS_OF[parts[0]])


def runs_what_is_slow(*arguments: str) -> bool:
    """Returns whether a process of pytest-xdist runs a quick test of a file that is left out."""
    one = [*arguments, "-n1", "-q", "-k", "the_workflow_runs_each_program", "-p", "no:cacheprovider"]
    done = subprocess.run([sys.executable, "-m", "pytest", *one], cwd=ROOT, capture_output=True, text=True, check=False)
    return "1 passed" in done.stdout


def test_without_a_name_what_takes_minutes_is_left_out_and_named_it_runs() -> None:
    others = [f"--ignore={folder}" for folder in Path(ROOT, "tests").iterdir() if folder.name != "weekly"]
    assert not runs_what_is_slow(*others)
    for more in ("--slow", "--changed", "tests/weekly"):
        assert runs_what_is_slow(*others, more)
