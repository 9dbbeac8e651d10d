"""Fixtures and options of all tests. When a test is over, the oracle checks its journals."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import exhaustive
import oracle
from counting import counting  # noqa: F401
from filesystems import CannotMount, fast_disk, mounted
from processes.children import Child, Raised, run_within
from processes.forkserver import fork_server
from s3 import s3  # noqa: F401
from scheduling import WAITING_WORKERS, BesideWaiting, busy_workers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help=exhaustive.SLOW_TOO)
    parser.addoption("--exhaustive", action="store_true", help=exhaustive.ALL)
    parser.addoption("--changed", action="store_true", help=exhaustive.CHANGED)


def pytest_configure(config: pytest.Config) -> None:
    exhaustive.learn(config)
    # The same examples in each run: only a weekly run may find what the one for a change has not.
    hypothesis.settings.register_profile("same", derandomize=not config.getoption("--exhaustive"))
    hypothesis.settings.load_profile("same")
    # The tests start hundreds of processes. Without bytecode each of them would compile the whole package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # In memory nobody waits for a disk. `make test-all` runs every test on the disk that the machine has.
    if not config.getoption("--exhaustive"):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", fast_disk() or tempfile.gettempdir())
    # A shell that runs the tests in the background makes them ignore Ctrl-C, and their processes inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str | None:
    return None if config.option.slow else "the tests that take minutes are left out; --slow runs them too"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return exhaustive.is_left_out(config, collection_path) or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return busy_workers() + WAITING_WORKERS


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BesideWaiting | None:
    return BesideWaiting(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    exhaustive.choose(config, items)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints the seconds that the tests of each directory took, longest first; what ran side by side counts twice."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[os.path.dirname(report.nodeid.partition("::")[0])] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds")
        for directory, total in seconds.most_common():
            terminalreporter.write_line(f"{total:7.0f} s  {directory}")


SMALL = {"precommit": 4 << 10, "segment_bytes": 8 << 10}


def journals_below(path: Path) -> list[Path]:
    return sorted(Path(folder) for folder, _, names in os.walk(path) if "journal.meta" in names)


def check_journals_of(request: pytest.FixtureRequest, path: Path) -> None:
    """Each that the test has left below `path` is what docs/format.md allows."""
    if not request.node.get_closest_marker("damage"):
        for journal in journals_below(path):
            oracle.check_journal(journal)


def empty(folder: Path) -> None:
    """Gives the memory back. The folder stays, so that no other test of this run gets the same path."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


@pytest.fixture(autouse=True)
def _journals_are_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """The oracle looks at tmp_path once the test is over, which is then emptied, unless the test has failed."""
    path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    failed = request.session.testsfailed
    yield
    if path is not None:
        check_journals_of(request, path)
        if request.session.testsfailed == failed:
            empty(path)


@contextmanager
def directory_in(request: pytest.FixtureRequest, place: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jlog-test-", dir=place) as found:
        yield Path(found)
        check_journals_of(request, Path(found))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where most tests have their journal."""
    return tmp_path / "j"


@pytest.fixture
def in_memory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory like tmp_path, for a test that syncs thousands of times and whose outcome never depends on the disk."""
    with directory_in(request, fast_disk()) as found:
        yield found


@pytest.fixture
def on_disk(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory like tmp_path, for tests whose outcome depends on the disk."""
    with directory_in(request, None) as found:
        yield found


@pytest.fixture
def mount(request: pytest.FixtureRequest) -> Iterator[Callable[[str, float], Path]]:
    """Mounts an empty file system of a kind and of so many megabytes, as filesystems.mounted does; skips where this machine
    does not allow it. The oracle looks at what the test leaves there too."""
    roots = []
    with ExitStack() as stack:

        def mount_one(kind: str, megabytes: float) -> Path:
            try:
                roots.append(stack.enter_context(mounted(kind, megabytes)))
            except CannotMount as reason:
                pytest.skip(str(reason))
            return roots[-1]

        yield mount_one
        for root in roots:
            check_journals_of(request, root)


@pytest.fixture
def spawn(_journals_are_sound: None, mount: Callable[..., Path]) -> Iterator[Callable[..., Child]]:
    """Starts a worker process; all of them are gone before the journals are looked at. `within`: the command that a worker
    is started by, where it is not forked."""
    children: list[Child] = []

    def start(failpoints: str = "", within: Sequence[str] = ()) -> Child:
        child = Child(run_within(within, failpoints) if within else fork_server().start(JLOG_FAILPOINTS=failpoints))
        children.append(child)
        return child

    yield start
    for child in children:
        child.discard()


@pytest.fixture
def victim(spawn: Callable[..., Child], tmp_path: Path) -> Child:
    """A process that is going to be killed or stopped: it has a writer of `tmp_path / "j"`, which has written, and one that
    bypasses the buffer."""
    path, child = str(tmp_path / "j"), spawn()
    child.call("open_writer", "victim", path, SMALL)
    child.call("open_writer", "direct", path, {"precommit": 0})
    child.call("append", "victim", 3)
    return child


@pytest.fixture(scope="session")
def failpoints() -> None:
    """Skips where the core was built without them."""
    from jlog._core.system.durable import sync_directory

    os.environ["JLOG_FAILPOINTS"] = "file.sync_directory=5@0"
    try:
        sync_directory(Path(__file__).parent)
    except OSError:
        return
    finally:
        del os.environ["JLOG_FAILPOINTS"]
    pytest.skip("the core was built without failpoints; `make test` builds it with them")


@pytest.fixture
def raised_by() -> Callable[..., Raised]:
    """Tells the child to do what must raise; returns what it raised."""

    def call(child: Child, *arguments: Any) -> Raised:
        with pytest.raises(Raised) as caught:
            child.call(*arguments)
        return caught.value

    return call
