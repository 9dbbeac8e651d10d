"""Ranges of a lock file: between descriptions, threads and processes."""

import os
import threading

import pytest

import jlog
from jlog._core.system.lock import Deadline, LockFile, Mutex, current_process_token
from patience import HUNG_SECONDS


@pytest.fixture
def path(tmp_path):
    LockFile(str(tmp_path / "lock"), create=True).close()
    return str(tmp_path / "lock")


@pytest.fixture
def one(path):
    return LockFile(path)


@pytest.fixture
def other(path):
    return LockFile(path)


def in_thread(call, *arguments):
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    thread.join()


def test_a_range_excludes_other_lock_files_of_this_process(one, other):
    assert one.acquire(5, timeout=0)
    assert not other.acquire(5, timeout=0)
    assert other.acquire(6, timeout=0)
    one.release(5)
    assert other.acquire(5, timeout=0)


def test_ranges_that_overlap_exclude_each_other(one, other):
    assert one.acquire(10, 10)
    assert not other.acquire(19, 5, timeout=0)
    assert not other.acquire(0, 11, timeout=0)
    assert other.acquire(20, 5, timeout=0)
    assert other.acquire(0, 10, timeout=0)


def test_shared_holders_exclude_only_one_that_is_alone(one, other, path):
    assert one.acquire(3, shared=True)
    assert other.acquire(3, shared=True, timeout=0)
    assert not LockFile(path).acquire(3, timeout=0)


def test_is_held_tells_of_others_and_not_of_oneself(one, other):
    one.acquire(7)
    assert other.is_held(7)
    assert other.is_held(0, 100)
    assert not one.is_held(7)
    assert not other.is_held(8)


def test_closing_frees_the_ranges(one, other):
    one.acquire(1)
    one.close()
    assert other.acquire(1, timeout=0)
    one.close()


def test_forgetting_frees_the_ranges(path, other):
    forgotten = LockFile(path)
    forgotten.acquire(1)
    del forgotten
    assert other.acquire(1, timeout=0)


def test_a_timeout_is_waited_for_and_a_release_meanwhile_is_seen(one, other):
    in_thread(one.acquire, 1)
    assert not other.acquire(1, timeout=0.05)
    releasing = threading.Timer(0.05, one.release, (1,))
    releasing.start()
    assert other.acquire(1, timeout=HUNG_SECONDS)
    releasing.join()


def test_waiting_without_timeout_ends_with_the_release(one, other):
    in_thread(one.acquire, 1)
    releasing = threading.Timer(0.05, one.release, (1,))
    releasing.start()
    assert other.acquire(1)
    releasing.join()


def test_held_is_a_context_that_frees_also_when_it_raises(one, other):
    with pytest.raises(RuntimeError):  # noqa: PT012
        with one.held(2):
            assert other.is_held(2)
            raise RuntimeError
    assert not other.is_held(2)


def test_held_raises_at_its_deadline_and_says_what_others_do(one, other, tmp_path):
    one.acquire(2)
    with pytest.raises(jlog.JournalLocked, match=f"{tmp_path}: another process.* was at it .* continue or end it"):
        with other.held(2, deadline=Deadline(0), what="was at it"):
            pass
    one.release(2)
    with other.held(2, deadline=Deadline(0)):
        pass


def test_held_excludes_threads_that_share_the_object(one):
    mutex = Mutex(one.path)
    found = []

    def take():
        try:
            with one.held(2, deadline=Deadline(0.01), mutex=mutex):
                found.append(None)
        except jlog.JournalLocked as error:
            found.append(str(error))

    with one.held(2, mutex=mutex):
        in_thread(take)
    in_thread(take)
    assert "another thread of this process" in found[0]
    assert found[1] is None


@pytest.mark.parametrize("timeout", [None, HUNG_SECONDS])
def test_a_thread_that_would_wait_for_itself_is_refused_at_once(one, other, timeout):
    """It is a signal's handler that has interrupted the call which holds the range."""
    one.acquire(1)
    with pytest.raises(jlog.JournalLocked, match="this thread holds the lock itself"):
        other.acquire(1, timeout=timeout)
    one.release(1)
    assert other.acquire(1)
    other.close()
    mutex = Mutex(one.path)
    with one.held(2, mutex=mutex):
        with pytest.raises(jlog.JournalLocked, match="this thread holds the lock itself"):
            with one.held(2, mutex=mutex):
                pass
    with one.held(2, mutex=mutex):
        pass


def test_a_deadline_is_that_of_the_whole_call():
    assert Deadline(None).left() is None
    assert Deadline(-1).left() == Deadline(0).left() == 0
    assert 0 < Deadline(1000).left() <= 1000
    assert Deadline(None).at_most(0).left() == Deadline(1000).at_most(0).left() == 0
    assert 0 < Deadline(1000).at_most(None).left() <= 1000
    assert 0 < Deadline(1000).at_most(2000).left() <= 1000


def test_a_forked_child_frees_nothing_of_its_parent(one, other):
    one.acquire(1)
    child = os.fork()
    if child == 0:
        one.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert other.is_held(1)


def test_a_child_that_outlives_nobody_holds_nothing(path, other):
    child = os.fork()
    if child == 0:
        LockFile(path).acquire(9)
        os._exit(0)
    os.waitpid(child, 0)
    assert other.acquire(9, timeout=0)


def test_a_forked_child_has_another_token(one):
    token = current_process_token()
    assert current_process_token() == token
    child = os.fork()
    if child == 0:
        os._exit(1 if current_process_token() == token else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert current_process_token() == token


def test_one_opened_for_reading_can_ask(path, one):
    asking = LockFile(path, writable=False)
    one.acquire(4)
    assert asking.is_held(4)
    assert not asking.is_held(5)


def test_a_file_that_is_not_there_is_an_os_error_with_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        LockFile(str(tmp_path / "missing"))
    assert caught.value.filename == str(tmp_path / "missing")
