"""Threads beside the end of the interpreter: CPython 3.11 crashes where one begins to run after that."""

import subprocess
import sys
import threading

import pytest

from jlog.errors import JournalError
from jlog.flow.stop import Stop, Stopped
from jlog.kafka.client import background
from jlog.kafka.client.background import answer_of, let_go
from jlog.system import threads

LATE = """
import _thread, atexit, os, time

def late(run, arguments):
    def run_late():
        time.sleep(0.2)
        os.write(1, b"begins ")
        run(*arguments)
    begin(run_late, ())

atexit.register(os.write, 1, b"exits")  # after what jlog registers later
begin, _thread.start_new_thread = _thread.start_new_thread, late

from jlog.flow.stop import Stop, Stopped
from jlog.kafka.client.background import answer_of

stop = Stop(grace_seconds=0)
stop.request()
try:
    answer_of(list, stop)
except Stopped:
    os.write(1, b"stopped ")
"""


@pytest.fixture
def left():
    """The threads that the exit waits for because of this test. Another one may have left some, where a signal's handler raised
    between two steps of a start."""
    before = set(threads._starting)
    return lambda: threads._starting - before


class Client:
    closed = False

    def close(self) -> None:
        self.closed = True


def test_the_exit_waits_for_a_thread_that_has_not_begun():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, check=True)
    assert done.stdout == b"stopped begins exits"


def test_beside_the_exit_no_other_thread_starts_one(monkeypatch, left):
    monkeypatch.setattr(threads, "_exits", exits := threading.Event())
    exits.set()
    client, outcomes = Client(), []

    def run() -> None:
        let_go([client])
        with pytest.raises(Stopped) as stopped:
            answer_of(list, Stop())
        outcomes.append(stopped.type)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert outcomes == [Stopped]
    assert not client.closed
    assert not left()
    assert answer_of(list, Stop()) == []
    let_go(clients := [client])
    assert client.closed
    assert not clients


@pytest.mark.parametrize("call", [lambda: answer_of(list, Stop()), lambda: threads.start_thread("t", list)])
def test_the_exit_does_not_wait_for_a_thread_that_could_not_be_started(monkeypatch, call, left):
    def refuse(*_given, **_more):
        raise RuntimeError("can't start new thread")

    for module, name in ((background._thread, "start_new_thread"), (threading.Thread, "start")):
        monkeypatch.setattr(module, name, refuse)
    with pytest.raises((RuntimeError, JournalError), match="can't start new thread"):
        call()
    assert not left()
