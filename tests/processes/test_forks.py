"""After a fork the child's writer opens anew, its readers raise, and the parent's objects go on: a child takes nothing away."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from itertools import count

import pytest

import jlog
from elsewhere import run_python
from patience import HUNG_SECONDS
from processes.units import check_units, read_all

FOUND = {
    "read r": "JournalClosed",
    "commit r": "JournalClosed",
}


@pytest.fixture
def parent(spawn, tmp_path):
    """A process with a writer `w` and a subscriber `r`."""
    child = spawn()
    child.call("open_writer", "w", str(tmp_path / "j"), {"precommit": 4 << 10})
    child.call("append", "w", 5)
    child.call("subscribe", "r", str(tmp_path / "j"))
    return child


def fork(parent, path):
    """The child's number, and what it found."""
    parent.call("fork", "w", str(path))
    return parent.told["forked"] if "forked" in parent.told else parent.wait_for("forked")


def test_the_childs_readers_raise_and_the_parents_go_on(parent, tmp_path):
    _, found = fork(parent, tmp_path / "j")
    assert found == FOUND
    parent.call("append", "w", 5)
    assert parent.call("read", "r", 100) == list(range(10))
    parent.call("commit", "r")
    parent.call("close", "w")
    check_units(tmp_path / "j", parent.acknowledged)


def test_the_childs_writer_opens_the_journal_anew(parent, tmp_path):
    """Both append to it at once."""
    parent.call("fork_and_append", "w", str(tmp_path / "j"), "forked")
    records = check_units(tmp_path / "j", parent.acknowledged)
    assert len(records) == 45


def test_every_call_of_a_writer_opens_it_in_a_child(tmp_path):
    """Also for several threads at once; close() alone opens nothing."""
    path = tmp_path / "j"
    run_python(f"""
import threading, jlog
path = {str(path)!r}
writer = jlog.Writer(path, precommit=8192, lock_timeout=5)

def in_child(call):
    pid = os.fork()
    if pid == 0:
        try:
            call()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, call

def in_threads():
    threads = [threading.Thread(target=writer.append, args=(b"thread",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.next_sequence >= 8
    writer.close()
    assert repr(writer).endswith("closed>")

def closes():
    assert "parent" in repr(writer)
    writer.close()
    try:
        writer.append(b"closed")
    except jlog.JournalClosed:
        return
    raise AssertionError("it is open")

import traceback
from jlog.writer import EncodedRecords, extend_body
calls = [
    lambda: writer.append(b"plain"),
    lambda: writer.append(b"keyed", key=b"key"),
    lambda: writer.extend([b"several", b"values"]),
    lambda: writer.extend([b"state"], state={{b"key": b"value"}}),
    lambda: extend_body(writer, EncodedRecords()),
    writer.flush, writer.sync, writer.roll,
    lambda: writer.next_sequence,
    lambda: writer.__enter__(),
    in_threads,
    closes,
]
for call in calls:
    in_child(call)
writer.append(b"parent")
writer.close()
""")
    with jlog.Reader(path) as reader:
        values = list(reader.values())
    assert sorted(values) == sorted([b"plain", b"keyed", b"several", b"values", b"state", *[b"thread"] * 8, b"parent"])


def test_a_child_of_an_exclusive_writer_is_refused(tmp_path):
    """The parent is the only writing process as long as it lives."""
    run_python(f"""
import jlog
writer = jlog.Writer({str(tmp_path / "j")!r}, exclusive=True)
pid = os.fork()
if pid == 0:
    try:
        writer.append(b"child")
        os._exit(1)
    except jlog.JournalLocked:
        os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert writer.append(b"parent") == 0
""")


def test_a_child_outlives_its_parent_without_its_slot_and_names(parent, spawn, tmp_path):
    path, other = tmp_path / "j", spawn()
    pid, _ = fork(parent, path)
    parent.process.kill()
    parent.process.wait()
    # Alone: nobody's slot is held, so that the pre-commit buffer may grow.
    with jlog.Writer(path, precommit=1 << 20, exclusive=True) as writer:
        assert writer.precommit == 1 << 20
    assert other.call("subscribe", "r", str(path)) == 0
    os.kill(pid, 0)  # the child has outlived all of this


def test_a_childs_end_frees_nothing_of_its_parents(parent, spawn, tmp_path, raised_by):
    path, other = str(tmp_path / "j"), spawn()
    pid, _ = fork(parent, path)
    os.kill(pid, signal.SIGKILL)
    parent.call("reap", pid)
    assert raised_by(other, "subscribe", "r", path).kind == "SubscriberBusy"
    other.call("open_writer", "w", path, {"precommit": 1 << 20})
    other.call("append", "other", 3, 0, "w")
    parent.call("append", "w", 3)
    assert len(check_units(path, parent.acknowledged + other.acknowledged)) == 11


def test_a_fork_while_threads_append_harms_neither(spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    child.call("open_writer", "w", str(path), {"precommit": 4 << 10, "segment_bytes": 8 << 10})
    child.call("fork_beside_threads", "w", str(path), 8)
    records = check_units(path, child.acknowledged)
    assert len(records) == 8 * 10 + len([unit for unit in child.acknowledged if unit.writer.startswith("t")])


def test_a_fork_leaves_no_file_of_the_parent_removed(parent, tmp_path):
    """The spare segment that the parent has prepared is its own."""
    parent.call("extend", "w", 4, 4, 200)
    parent.call("roll", "w")
    parent.call("fork", "w", str(tmp_path / "j"))
    parent.call("roll", "w")
    parent.call("extend", "w", 40, 4, 900)
    parent.call("close", "w")
    assert read_all(tmp_path / "j")
    check_units(tmp_path / "j", parent.acknowledged)


def test_a_child_never_has_a_descriptor_that_its_parent_locks_by(tmp_path):
    """Threads open and close journals, readers and lock files while another one forks; children look at once."""
    path = tmp_path / "j"
    run_python(f"""
import threading
from jlog._core.system.lock import LockFile
sys.setswitchinterval(1e-6)
path = {str(path)!r}
jlog.Writer(path).close()
jlog.Reader(path, "billing").close()
done = threading.Event()
opened = []

def until_done(call):
    def go_on():
        try:
            while not done.is_set():
                call()
                opened.append(call)
        except BaseException as error:
            opened.append(error)
            raise
    return threading.Thread(target=go_on)

threads = [
    until_done(lambda: LockFile(path + "/lock").close()),
    until_done(lambda: jlog.Reader(path, "billing").close()),
    until_done(lambda: jlog.Writer(path).close()),
]
for thread in threads:
    thread.start()

def kept():
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink("/proc/self/fd/" + fd))
        except FileNotFoundError:
            pass
    return [name for name in names if name.endswith("/lock") or "/subscribers/" in name]

try:
    for _ in range(400):
        pid = os.fork()
        if pid == 0:
            os._exit(len(kept()))
        assert os.waitpid(pid, 0)[1] == 0, "the child has the parent's locks"
finally:
    done.set()
    for thread in threads:
        thread.join()
assert not [error for error in opened if isinstance(error, BaseException)]
""")


HOLDERS = {
    "a Writer with segments to sync": "[writer.append(b'x' * 3000) for _ in range(30)]",
    "a Writer that has read": "reader = jlog.Reader(path, 'r'); [writer.append(b'x' * 3000) for _ in range(9)]; list(reader)",
    "a Reader that waits": "reader = jlog.Reader(path); next(reader.follow()); list(reader.follow(timeout=0))",
    "a Worker": "worker = jlog.Worker(path, 'work'); tasks = worker.take(1)",
    "a Journal": "journal = jlog.Journal(path); journal.segments(), journal.state(), journal.verify()",
    "a handler of logging": "handler = jlog.logging.JournalHandler(path); handler.handle(logging.makeLogRecord({'msg': 'x'}))",
    "a Writer after a roll": "writer.roll(); writer.sync()",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_child_keeps_no_file_of_a_journal_that_its_parent_has_open(tmp_path, holder):
    """And what the parent's objects close at the child's end are not the files that the child has opened since."""
    run_python(f"""
import gc, logging
import jlog.logging
path = {str(tmp_path / "j")!r}

def held():
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink("/proc/self/fd/" + fd))
        except FileNotFoundError:
            pass
    return [name for name in names if name.startswith(path)]

writer = jlog.Writer(path, segment_bytes=4096)
writer.append(b"first")
{HOLDERS[holder]}
assert held()
pid = os.fork()
if pid == 0:
    status = 1
    try:
        assert held() == [], held()
        own = [jlog.Reader(path), jlog.Writer(path)]
        own[1].append(b"child")
        names = sorted(held())
        writer = reader = worker = tasks = journal = handler = None
        gc.collect()
        assert sorted(held()) == names, (held(), names)
        assert own[1].append(b"more") == len(list(own[0].values())) - 1
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
""")


def test_what_a_program_opens_under_a_number_that_it_has_taken_from_jlog_stays_open_in_a_child(tmp_path):
    """As daemons do, which close every descriptor at their start."""
    run_python(f"""
import jlog
writer = jlog.Writer({str(tmp_path / "j")!r})
writer.append(b"x")
os.closerange(3, 100)
files = [open("/dev/null") for _ in range(60)]
pid = os.fork()
if pid == 0:
    status = 1
    try:
        for file in files:
            os.fstat(file.fileno())
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(pid, 0)[1] == 0
""")


def test_nothing_is_written_into_a_file_of_the_program_that_has_the_number_and_the_inode_of_a_removed_segment(mount):
    """A file system gives the inode of a removed file to one of the next."""
    run_python(f"""
import shutil
import jlog
base = {str(mount("ext4", 16))!r}
writer = jlog.Writer(base + "/j", segment_bytes=1 << 20)
writer.append(b"x")
writer.sync()
numbers = [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.realpath("/proc/self/fd/" + fd).endswith(".seg")]
number = numbers[0]
inode = os.fstat(number).st_ino
os.closerange(3, 256)
shutil.rmtree(base + "/j")
own = None
for count in range(200):
    name = base + f"/own{{count}}"
    with open(name, "w") as file:
        file.write("mine")
    if os.stat(name).st_ino == inode:
        own = name
        break
assert own is not None, "the inode was not given again"
while (fd := os.open(own, os.O_RDWR)) < number:
    pass
assert fd == number
if os.fork() == 0:
    status = 1
    try:
        os.fstat(fd)
        status = 0
    finally:
        os._exit(status)
assert os.wait()[1] == 0
for call in (lambda: writer.append(b"y" * 100), writer.sync, writer.close):
    try:
        call()
    except (jlog.JournalError, OSError):
        pass
assert os.fstat(fd).st_ino == inode
assert os.pread(fd, 100, 0) == b"mine"
""")


def test_a_child_of_a_busy_writer_keeps_no_segment_that_is_removed_later(tmp_path):
    run_python(f"""
import jlog
path = {str(tmp_path / "j")!r}
writer = jlog.Writer(path, segment_bytes=64 << 10)
reader = jlog.Reader(path, "billing")
for _ in range(100):
    writer.append(b"x" * 10_000)
asked, told = os.pipe()
ended, end = os.pipe()
child = os.fork()
if child == 0:
    os.close(end)
    writer.append(b"the child's own record")
    os.write(told, b".")
    os.read(ended, 1)
    os._exit(0)
os.read(asked, 1)
list(reader)
reader.commit()
writer.roll()
list(reader)
reader.commit()
kept = [os.readlink(f"/proc/{{child}}/fd/{{fd}}") for fd in os.listdir(f"/proc/{{child}}/fd")]
os.close(end)
os.waitpid(child, 0)
assert len(os.listdir(path)) < 12
assert not [name for name in kept if name.endswith(".seg (deleted)")], kept
""")


def test_a_parent_killed_with_the_lock_is_dead_despite_children(spawn, tmp_path):
    path, parent, other = tmp_path / "j", spawn(), spawn()
    parent.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    parent.call("append", "w", 2)
    parent.call("fork_beside_opening", str(path), 20)
    children = parent.told["children"][0]
    try:
        other.call("open_writer", "x", str(path), {})
        parent.call("arm", "append.encoded=kill@1")
        parent.dies("append", "w", 1)
        other.call("append", "x", 3)
        assert other.call("subscribe", "r", str(path)) == 0
        check_units(path, parent.acknowledged + other.acknowledged)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


SERVICE = """
import logging
import os
import jlog
import jlog.logging

writer = jlog.Writer("events", segment_bytes=4096)
logging.getLogger("at.import").addHandler(jlog.logging.JournalHandler("log", segment_bytes=4096))
logging.getLogger("at.import").warning("the program is loaded")
writer.append(b"loaded")


def held():
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink("/proc/self/fd/" + fd))
        except FileNotFoundError:
            pass
    return [name for name in names if name.startswith((os.getcwd() + "/events", os.getcwd() + "/log"))]


# A worker that begins with a file of a journal ends at once, and the server with it.
os.register_at_fork(after_in_child=lambda: held() and os._exit(3))


def application(environ, start_response):
    sequence = writer.append(environ["wsgi.input"].read())
    start_response("201 Created", [])
    return [b"%d %d" % (os.getpid(), sequence)]
"""


def test_workers_of_a_preloaded_service_append_each_event_once_also_when_one_is_killed(tmp_path):
    (tmp_path / "service.py").write_text(SERVICE)
    acknowledged, workers, killed = {}, set(), []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = "http://{}:{}".format(*listener.getsockname())
        options = ["--bind", f"fd://{listener.fileno()}", "--preload", "--workers", "2", "--log-level", "critical"]
        command = [sys.executable, "-m", "gunicorn", *options, "service:application"]
        server = subprocess.Popen(command, cwd=tmp_path, pass_fds=[listener.fileno()])

        def send(client):
            """Sends events until a third worker answers, which gunicorn starts for the one that is killed here."""
            for number in count():
                if server.poll() is not None or len(workers) == 3:
                    return
                event = f"{client} {number}".encode()
                with suppress(OSError, HTTPException):  # it was sent to the killed worker
                    worker, sequence = map(int, urllib.request.urlopen(url, event, HUNG_SECONDS).read().split())
                    acknowledged[sequence] = event
                    workers.add(worker)
                    if client == 0 and len(workers) == 2 and not killed:
                        killed.extend(workers - {worker})
                        os.kill(killed[0], signal.SIGKILL)

        try:
            with ThreadPoolExecutor(4) as clients:
                list(clients.map(send, range(4)))
        finally:
            server.terminate()
            assert server.wait(HUNG_SECONDS) == 0
    assert killed
    with jlog.Reader(tmp_path / "events") as reader:
        events = list(reader.values())
    assert {sequence: events[sequence] for sequence in acknowledged} == acknowledged
    assert len(set(events)) == len(events)
    with jlog.Reader(tmp_path / "log") as reader:
        assert len(list(reader)) == 1
