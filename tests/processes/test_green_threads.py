"""Under gevent and eventlet, which put greenlets in the place of threads, jlog waits for nobody and stops no greenlet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

import jlog
from brokers.test_celery import Cluster
from patience import HUNG_SECONDS, wait_until

LIBRARIES = {
    "gevent": ("from gevent import monkey; monkey.patch_all()", "import gevent; spawn, join = gevent.spawn, gevent.joinall"),
    "eventlet": (
        "import eventlet; eventlet.monkey_patch()",
        "spawn = eventlet.spawn\ndef join(all): [one.wait() for one in all]",
    ),
}
IMPORT = "import jlog, jlog.logging"
WORK = """
import logging, sys, threading, time
path, ticks, seen, done = sys.argv[1], [], [], []

def ticker():
    while not done:
        ticks.append(time.monotonic())
        time.sleep(0.001)

def until_it_has_run():
    "Others run while a call waits: only they can add to the journal."
    before = len(ticks)
    while len(ticks) < before + 3:
        time.sleep(0.001)

def later(call, *arguments):
    def run():
        until_it_has_run()
        call(*arguments)
    return spawn(run)

tick = spawn(ticker)
writers = [jlog.Writer(path, sync=sync, sync_interval=0.01) for sync in ("interval", "append", "none")]
writer = writers[0]
for each in writers:
    each.append(b"x")
handler = jlog.logging.JournalHandler(path + ".log")
handler.handle(logging.makeLogRecord({"msg": "told"}))
handler.close()
reader = jlog.Reader(path, "billing")
assert list(reader.values()) == [b"x"] * 3
reader.commit(durable=True)
late = [later(writer.append, b"late")]
assert reader.read(timeout=None).values() == [b"late"]
late.append(later(writer.append, b"later"))
assert next(reader.follow()).value == b"later"
before = len(ticks)
assert list(reader.follow(timeout=0.2)) == []
assert len(ticks) > before + 3
with jlog.Worker(path, "work", start="end", backoff=(0.01, 0.01)) as worker:
    late.append(later(writer.append, b"work"))
    with worker.take()[0] as task:
        assert task.value == b"work"
    failed = set()

    def handle(task):
        "Each sleeps, so that those of the other greenlets begin meanwhile."
        seen.append((task.value, threading.get_ident()))
        time.sleep(0.02)
        if task.value not in failed:
            failed.add(task.value)
            raise ValueError("once")
        if len(seen) == 12:
            worker.stop()

    logging.disable()
    late.append(later(writer.extend, [b"%d" % number for number in range(6)]))
    worker.run(handle, threads=3)
    assert len({ident for _, ident in seen}) == 3, seen
for call in (lambda: reader.follow_async(), lambda: writer.append_durable(b"x").send(None)):
    try:
        call()
    except (jlog.JournalError, RuntimeError) as error:
        assert "greenlets" in str(error) or "no running event loop" in str(error), error
    else:
        raise AssertionError("not refused")
join(late)
done.append(True)
for each in writers:
    each.close()
assert jlog.Journal(path).verify().ok
reader.close()
jlog.Journal.delete(path)
print("done")
"""


def needs(library: str) -> None:
    """It is not imported here: eventlet warns of each fork of a process that has it."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed; pip install {library}")


@pytest.mark.parametrize("patched_first", [True, False], ids=["patched first", "imported first"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_call_that_waits_or_has_a_thread_works_beside_greenlets(
    tmp_path: Path, library: str, patched_first: bool
) -> None:
    needs(library)
    patch, names = LIBRARIES[library]
    lines = [patch, IMPORT] if patched_first else [IMPORT, patch]
    program = "\n".join([*lines, names, WORK])
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "j")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HUNG_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


SERVICE = """
import jlog

writer = jlog.Writer("events", sync="append")


def application(environ, start_response):
    if environ["PATH_INFO"] == "/last":
        with jlog.Reader("events", start="end") as reader:
            start_response("200 OK", [])
            return [next(reader.follow()).value]
    writer.append(environ["wsgi.input"].read())
    start_response("201 Created", [])
    return [b"x"]
"""


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["each worker loads", "preloaded"])
def test_a_worker_of_gunicorn_with_greenlets_serves_others_while_a_request_waits_for_a_record(
    tmp_path: Path, options: list[str]
) -> None:
    needs("gevent")
    (tmp_path / "service.py").write_text(SERVICE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = "http://{}:{}".format(*listener.getsockname())
        common = ["--bind", f"fd://{listener.fileno()}", "-k", "gevent", "--workers", "1", "--log-level", "critical"]
        command = [sys.executable, "-m", "gunicorn", *common, *options, "service:application"]
        server = subprocess.Popen(command, cwd=tmp_path, pass_fds=[listener.fileno()])
        try:
            with ThreadPoolExecutor(1) as clients:
                last = clients.submit(lambda: urllib.request.urlopen(f"{url}/last", None, HUNG_SECONDS).read())
                sent = 0
                while not last.done():
                    assert urllib.request.urlopen(url, b"%d" % sent, HUNG_SECONDS).read() == b"x"
                    sent += 1
                assert int(last.result()) < sent
        finally:
            server.terminate()
            assert server.wait(HUNG_SECONDS) == 0
    with jlog.Reader(tmp_path / "events") as reader:
        assert list(reader.values()) == [b"%d" % number for number in range(sent)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_pool_of_greenlets_of_celery_does_every_task(tmp_path: Path, library: str) -> None:
    needs(library)
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.call("for number in range(40): note.delay(str(number))")
        cluster.worker("-P", library, "-c", "4")
        wait_until(lambda: len(cluster.done()) == 40)
        wait_until(lambda: cluster.unfinished() == 0)
        assert sorted(map(int, cluster.done())) == list(range(40))
    assert os.listdir(tmp_path / "broker" / "queues")
