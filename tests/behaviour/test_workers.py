"""Workers that share a subscriber: each record goes to one of them at a time, and is finished by itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

import jlog
from behaviour.journals import no_file_may_grow, values
from conftest import SMALL
from crash.tampering import change
from jlog._core.system.lock import RANGES, LockFile
from jlog.positions import work_files
from jlog.storage.segments import state_of
from patience import HUNG_SECONDS, wait_until


def fill(path, count=10, keys=None, **options):
    with jlog.Writer(path, **options) as writer:
        writer.extend([b"%d" % i for i in range(count)], keys)


def sequences(tasks):
    return [task.sequence for task in tasks]


def in_thread(call):
    """Makes the call in another thread, and raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def open_worker(path, **options):
    return jlog.Worker(path, "billing", **options)


def finish_all(worker):
    while tasks := worker.take(100, timeout=0):
        worker.ack(tasks)


def take_some(worker, timeout):
    while not (tasks := worker.take(timeout=timeout)):
        pass
    return tasks


def position(path):
    return jlog.Journal(path).subscribers()["billing"]


# --- Taking and finishing ---------------------------------------------------------------------------------------------


def test_a_task_has_what_a_record_has(path):
    with jlog.Writer(path) as writer:
        writer.append(b"value", key=b"key", headers=[("name", b"text")])
    with jlog.Reader(path) as reader, open_worker(path) as worker:
        (record,), (task,) = list(reader), worker.take()
        assert (task.value, task.key, task.headers) == (b"value", b"key", [("name", b"text")])
        assert (task.sequence, task.timestamp) == (record.sequence, record.timestamp)
        assert task.attempt == 1
        assert isinstance(task, jlog.Record)


def test_two_workers_get_different_records(path):
    fill(path)
    with open_worker(path) as one, open_worker(path) as other:
        first, second = one.take(4), other.take(100)
        assert sequences(first) == [0, 1, 2, 3]
        assert sequences(second) == [4, 5, 6, 7, 8, 9]
        assert one.take(timeout=0) == other.take(timeout=0) == []


def test_the_committed_position_is_the_oldest_unfinished_record(path):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(10)
        for task in tasks[1:]:
            task.ack()
        assert (worker.committed, position(path).sequence, position(path).lag) == (0, 0, 10)
        tasks[0].ack()
        assert (worker.committed, position(path).sequence, position(path).lag) == (10, 10, 0)


def test_a_finished_record_never_comes_again(path):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(10)
        worker.ack(tasks[5:])
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == [0, 1, 2, 3, 4]


def test_a_second_ack_does_nothing(path):
    fill(path)
    with open_worker(path) as worker:
        (task,) = worker.take()
        task.ack()
        task.ack()
        task.nack()
        assert worker.committed == 1


def test_acks_after_close_raise(path):
    fill(path)
    with open_worker(path) as worker:
        held, done = worker.take(2)
        done.ack()
    for call in (held.ack, held.nack, held.reject, done.ack, worker.take, lambda: worker.ack([held])):
        with pytest.raises(jlog.JournalClosed):
            call()


def test_a_block_without_an_error_is_an_ack_and_one_with_an_error_a_nack(path):
    fill(path, 2)
    with open_worker(path, backoff=(0, 0)) as worker:
        with pytest.raises(ZeroDivisionError), next(worker.tasks(timeout=0)):
            1 / 0  # noqa: B018
        (again,) = worker.take()
        assert (again.sequence, again.attempt) == (0, 2)
        with again:
            pass
        assert worker.committed == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_interrupt_out_of_a_block_counts_no_attempt(path, error):
    fill(path, 1)
    with open_worker(path) as worker:
        (task,) = worker.take()
        with pytest.raises(error), task:
            raise error
        (again,) = worker.take(timeout=0)
        assert again.attempt == 1


def test_close_gives_back_without_an_attempt(path):
    fill(path)
    with open_worker(path) as other:
        with open_worker(path) as worker:
            worker.take(3)
        again = other.take(3, timeout=0)
        assert sequences(again) == [0, 1, 2]
        assert {task.attempt for task in again} == {1}


def test_what_is_free_again_comes_before_what_is_new(path):
    fill(path)
    with open_worker(path) as worker:
        _held, again = worker.take(2)
        again.nack(delay=0)
        assert sequences(worker.take(3, timeout=0)) == [1, 2, 3]


@pytest.mark.parametrize("state", [{}, {b"key": b"state"}], ids=["plain", "state"])
def test_a_record_that_is_free_again_is_found_after_the_end_that_was_read_before(path, state):
    with jlog.Writer(path) as writer, open_worker(path) as worker:
        writer.extend([b"0", b"1"], state=state)  # state stands after the records, and has no sequence
        worker.take()[0].nack(delay=0)
        held = worker.take()  # read again, in a block of two records
        held += worker.take()
        writer.append(b"2")
        worker.take()[0].nack(delay=0)
        held += worker.take()
        assert [task.value for task in held] == [b"0", b"1", b"2"]


def test_durable_acks_of_two_subscribers_at_once_keep_both(path, monkeypatch):
    fill(path)
    write_whole = work_files.write_whole
    with jlog.Worker(path, "one") as one, jlog.Worker(path, "other") as other:
        given = one.take(5)

        def meanwhile(*arguments):
            monkeypatch.setattr(work_files, "write_whole", write_whole)
            other.ack(other.take(2), durable=True)  # as another thread may
            write_whole(*arguments)

        monkeypatch.setattr(work_files, "write_whole", meanwhile)
        one.ack(given, durable=True)
    for name, finished in (("one", 5), ("other", 2)):
        (path / "work" / f"{name}.window").unlink()
        with jlog.Worker(path, name) as again:
            assert again.committed == finished
            assert sequences(again.take(1, timeout=0)) == [finished]
    assert sorted(os.listdir(path / "work")) == ["one.window", "one.work", "other.window", "other.work"]


def test_tasks_of_another_worker_are_refused(path):
    fill(path)
    with open_worker(path) as one, open_worker(path) as other, pytest.raises(ValueError, match="not a task of this worker"):
        one.ack(other.take())


def test_records_of_many_blocks_and_segments(path):
    fill(path, 3_000, **SMALL)
    with open_worker(path) as one, open_worker(path) as other:
        found = []
        while tasks := [*one.take(7, timeout=0), *other.take(11, timeout=0)]:
            found += [(task.sequence, task.value) for task in tasks]
            for task in tasks:
                task.ack()
        assert sorted(found) == [(i, b"%d" % i) for i in range(3_000)]
    assert position(path).lag == 0
    assert len(jlog.Journal(path).segments()) == 1  # retention has followed


def test_a_window_grows_with_what_is_unfinished(path):
    fill(path, 5_000)
    with open_worker(path) as worker:
        tasks = worker.take(5_000)
        assert sequences(tasks) == list(range(5_000))
        worker.ack(tasks[1:])
        assert worker.committed == 0
    with open_worker(path) as worker:
        assert sequences(worker.take(10, timeout=0)) == [0]


def test_a_full_window_says_so_once_and_goes_on_when_something_is_finished(path, caplog):
    fill(path)
    with open_worker(path, window=4) as worker, caplog.at_level(logging.WARNING, "jlog"):
        tasks = worker.take(100)
        assert len(tasks) == 4
        assert worker.take(timeout=0.01) == worker.take(timeout=0.01) == []
        assert [record.message for record in caplog.records if "is full" in record.message][1:] == []
        assert "its window of 4 unfinished ones is full" in caplog.text
        tasks[2].ack()
        assert sequences(worker.take(100, timeout=0)) == [4]


def test_finished_records_between_unfinished_ones_do_not_count(path):
    fill(path, 1_000)
    with open_worker(path, window=4) as worker:
        (first,) = worker.take()
        for task in worker.tasks(timeout=0):
            task.ack()
        assert worker.committed == 0
        first.ack()
        assert worker.committed == 1_000


# --- Delays ----------------------------------------------------------------------------------------------------------


def test_a_delayed_record_comes_when_it_is_due(path):
    fill(path, 1)
    with open_worker(path) as worker:
        worker.take()[0].nack(delay=0.2)
        assert worker.take(timeout=0) == []
        (task,) = worker.take(timeout=30)
        assert task.attempt == 2


def test_the_backoff_doubles(path):
    fill(path, 1)
    with open_worker(path, backoff=(0.001, 0.004)) as worker:
        for attempt in range(1, 6):
            (task,) = worker.take(timeout=30)
            assert task.attempt == attempt
            task.nack()


def test_one_long_delay_stops_nobody(path):
    fill(path)
    with open_worker(path) as worker:
        worker.take()[0].nack(delay=3600)
        assert sequences(worker.take(100, timeout=0)) == list(range(1, 10))


# --- Order of keys ----------------------------------------------------------------------------------------------------


def test_records_of_one_key_come_one_after_the_other(path):
    fill(path, 6, [b"a", b"a", b"b", b"a", None, None])
    with open_worker(path, order="key") as one, open_worker(path) as other:
        tasks = one.take(100)
        assert sequences(tasks) == [0, 2, 4, 5]
        assert other.take(timeout=0) == []
        tasks[0].ack()
        (following,) = other.take()
        assert following.sequence == 1
        assert one.take(timeout=0) == []
        following.ack()
        assert sequences(one.take()) == [3]


def test_a_delayed_record_holds_its_key_and_a_rejected_one_frees_it(path):
    fill(path, 3, [b"a", b"a", b"b"])
    with open_worker(path, order="key") as worker:
        first, second = worker.take(100)
        first.nack(delay=0.1)
        second.ack()
        assert worker.take(timeout=0) == []
        (again,) = worker.take(timeout=30)
        assert again.sequence == 0
        again.reject("for good")
        assert sequences(worker.take(timeout=0)) == [1]


def test_keys_keep_their_order_after_another_worker_was_closed(path):
    fill(path, 4, [b"a", b"b", b"a", b"b"])
    with open_worker(path, order="key") as other:
        with open_worker(path) as worker:
            assert sequences(worker.take(10)) == [0, 1]
        assert sequences(other.take(10, timeout=0)) == [0, 1]


# --- Leases ------------------------------------------------------------------------------------------------------------


def test_a_lost_lease_is_told_and_changes_nothing(path):
    fill(path, 1)
    with open_worker(path, lease=0.01) as late, open_worker(path) as other:
        (task,) = late.take()
        (again,) = other.take(timeout=30)
        assert (again.sequence, again.attempt) == (0, 2)
        for call in (task.ack, task.nack, task.reject, lambda: task.extend(1)):
            with pytest.raises(jlog.LeaseLost) as raised:
                call()
            assert raised.value.tasks == [task]
        assert other.committed == 0
        again.ack()
        assert other.committed == 1
        with pytest.raises(jlog.LeaseLost):
            task.ack()


def test_a_lease_that_ran_out_while_nobody_took_the_record_loses_nothing(path):
    fill(path, 1)
    with open_worker(path, lease=0.001) as worker:
        (task,) = worker.take()
        threading.Event().wait(0.01)
        task.ack()
        assert worker.committed == 1


def test_an_extended_lease_keeps_the_record(path):
    fill(path, 1)
    with open_worker(path, lease=0.05) as worker, open_worker(path) as other:
        (task,) = worker.take()
        task.extend(3600)
        assert other.take(timeout=0.1) == []
        task.ack()


def test_a_take_that_lasts_longer_than_its_lease_hands_out_no_record_that_it_has_lost(path):
    """Another worker takes the record meanwhile and gives it back, so that it comes once more."""
    fill(path, 2)
    with open_worker(path, max_attempts=2) as other, open_worker(path, lease=0.001) as quick:
        slow = open_worker(path, lease=0.02)

        def reject(holder, task, reason, deadline):  # between two parts of the take
            threading.Event().wait(0.03)
            for taken in other.take(1, timeout=0):
                taken.release()
            holder.count_rejection(task)

        slow._source.policy.reject = reject
        zero, one = other.take(2)
        zero.nack(delay=0)
        held = quick.take(1)  # its lease ends at once, and that is its last failure
        assert sequences(held) == [0]
        one.release()
        threading.Event().wait(0.01)
        tasks = slow.take(10, timeout=0)
        assert sequences(tasks) == [1]
        slow.ack(tasks)
        assert slow.committed == 2
        slow.close()


def test_an_ack_of_many_finishes_those_that_are_held(path):
    fill(path, 3)
    with open_worker(path, lease=0.01) as late, open_worker(path) as other:
        tasks = late.take(3)
        (stolen,) = other.take(1, timeout=30)
        with pytest.raises(jlog.LeaseLost) as raised:
            late.ack(tasks)
        assert raised.value.tasks == [tasks[stolen.sequence]]
        stolen.ack()
        assert other.committed == 3


# --- Failing -----------------------------------------------------------------------------------------------------------


def test_the_last_failed_attempt_rejects(path, caplog):
    fill(path, 2)
    with open_worker(path, max_attempts=2, backoff=(0, 0)) as worker:
        for _ in range(2):
            (task,) = worker.take()
            assert task.sequence == 0
            task.nack(reason="no such customer")
        assert worker.committed == 1
    assert "record 0 was rejected after 2 attempts: no such customer" in caplog.text


def test_a_rejected_record_is_in_the_dead_letters_once(path, tmp_path):
    with jlog.Writer(path) as writer:
        writer.append(b"poison", key=b"k", headers=[("own", b"1")])
    with open_worker(path, max_attempts=1, dead_letters=tmp_path / "dead") as worker:
        with pytest.raises(ValueError, match="not a number"), worker.take()[0]:
            raise ValueError("not a number")
        assert worker.committed == 1
    with jlog.Reader(tmp_path / "dead") as reader:
        (letter,) = reader
    assert (letter.value, letter.key) == (b"poison", b"k")
    assert letter.headers == [
        ("own", b"1"),
        ("jlog.work.reason", b"ValueError: not a number"),
        ("jlog.work.attempts", b"1"),
        ("jlog.work.journal", os.fsencode(path)),
        ("jlog.work.subscriber", b"billing"),
        ("jlog.work.sequence", b"0"),
    ]


def test_a_rejection_reads_the_letters_only_where_another_worker_has_written_one(path, tmp_path, monkeypatch):
    """They become more and more."""
    looks = []
    monkeypatch.setattr("jlog.working.dead_letters.state_of", lambda place: looks.append(place) or state_of(place))
    fill(path, 6)
    with open_worker(path, dead_letters=tmp_path / "dead") as worker, open_worker(path) as other:
        for rejecting in (worker, worker, worker, other, worker):
            rejecting.take(timeout=0)[0].reject("broken")
    assert looks == [str(tmp_path / "dead")] * 3
    assert values(tmp_path / "dead") == [b"%d" % number for number in range(5)]


def test_dead_letters_in_the_journal_that_is_worked_on_are_refused(path, tmp_path):
    """Each would be a new record to reject, for ever."""
    (tmp_path / "link").symlink_to(path)
    for place in (path, tmp_path / "link"):
        with pytest.raises(ValueError, match="need a journal of their own"):
            open_worker(path, dead_letters=place)
    assert not path.exists()


def test_a_rejection_waits_for_a_busy_journal_of_letters_no_longer_than_its_lock_timeout(path, tmp_path):
    fill(path, 1)
    with open_worker(path, dead_letters=tmp_path / "dead", lock_timeout=0.05) as worker:
        (task,) = worker.take()
        jlog.Journal.create(tmp_path / "dead")
        with LockFile(tmp_path / "dead" / "lock").held(RANGES["open"]), pytest.raises(jlog.JournalLocked):
            in_thread(task.reject)
        task.reject("broken")
        assert worker.committed == 1


def test_where_the_dead_letter_cannot_be_written_the_record_stays_unfinished(path, tmp_path):
    fill(path, 1)
    (tmp_path / "dead").write_bytes(b"a file")
    with open_worker(path, dead_letters=tmp_path / "dead") as worker:
        (task,) = worker.take()
        with pytest.raises((jlog.JournalError, OSError)):
            task.reject("broken")
        assert worker.committed == 0
        (tmp_path / "dead").unlink()
        task.reject("broken")
        assert worker.committed == 1


def test_a_task_whose_dead_letter_could_not_be_written_comes_again(path, tmp_path):
    """Its worker lives: nobody else would ever get it."""
    fill(path, 1)
    (tmp_path / "dead").write_bytes(b"a file")
    with open_worker(path, max_attempts=1, dead_letters=tmp_path / "dead") as worker:
        (task,) = worker.take()
        with pytest.raises(KeyError), task:
            raise KeyError
        assert position(path).work.delayed == 1
        assert worker.take(timeout=1.5) == []  # another try to reject it, which is not the caller's
        (tmp_path / "dead").unlink()
        wait_until(lambda: worker.take(timeout=0) == [] and worker.committed == 1)
    assert values(tmp_path / "dead") == [b"0"]


def test_dead_letters_go_to_a_journal_that_took_the_place_of_another(path, tmp_path):
    fill(path, 2)
    with open_worker(path, dead_letters=tmp_path / "dead") as worker:
        first, second = worker.take(2)
        first.reject("broken")
        shutil.rmtree(tmp_path / "dead")
        with pytest.raises(jlog.JournalError):
            second.reject("broken")
        second.reject("broken")
        assert worker.committed == 2
    assert values(tmp_path / "dead") == [b"1"]


def test_a_worker_whose_dead_letters_are_gone_frees_its_name(path, tmp_path):
    fill(path, 1)
    worker = open_worker(path, dead_letters=tmp_path / "dead")
    worker.take()[0].reject("broken")
    shutil.rmtree(tmp_path / "dead")
    with pytest.raises(jlog.JournalMoved):
        worker.close()
    jlog.Reader(path, "billing").close()


# --- The name and the options -------------------------------------------------------------------------------------------


def test_readers_and_workers_exclude_each_other(path):
    fill(path)
    with open_worker(path), pytest.raises(jlog.SubscriberBusy):
        jlog.Reader(path, "billing")
    with jlog.Reader(path, "billing"), pytest.raises(jlog.SubscriberBusy):
        open_worker(path)


def test_positions_are_moved_only_without_workers(path):
    fill(path)
    journal = jlog.Journal(path)
    journal.set_checkpoint("start", 0)
    with open_worker(path) as worker:
        worker.ack(worker.take(10)[2:])
        for call in (lambda: journal.rewind("billing", "start"), lambda: journal.set_subscriber("billing", 3)):
            with pytest.raises(jlog.SubscriberBusy):
                call()
        with pytest.raises(jlog.SubscriberBusy):
            journal.remove_subscriber("billing")
    journal.set_subscriber("billing", 1)
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(1, 10))


def test_a_rewind_makes_everything_from_there_on_unfinished(path):
    fill(path)
    journal = jlog.Journal(path)
    journal.set_checkpoint("early", 2)
    with open_worker(path) as worker:
        worker.ack(worker.take(9))
        worker.sync_finishes()
    journal.rewind("billing", "early")
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(2, 10))


def test_a_reader_reads_from_the_oldest_unfinished_record_and_its_commit_keeps_the_finishes_beyond(path):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(8)
        worker.ack([tasks[i] for i in (0, 2, 5, 7)])
    with jlog.Reader(path, "billing") as reader:
        assert [record.sequence for record in reader] == list(range(1, 10))
        reader.commit(4)
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == [4, 6, 8, 9]


def test_a_reader_that_rewinds_makes_it_unfinished(path):
    fill(path)
    with open_worker(path) as worker:
        worker.ack(worker.take(10))
    with jlog.Reader(path, "billing") as reader:
        reader.commit(3)
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(3, 10))


def options_of(worker):
    worker._subscriber.refresh_options()
    options = worker._subscriber.options
    return options.order, options.max_attempts, options.backoff, options.window


def test_options_stay(path):
    fill(path)
    with open_worker(path, order="key", max_attempts=3, backoff=(2, 8)):
        pass
    with open_worker(path) as worker, open_worker(path, max_attempts=3) as other:
        assert options_of(worker) == options_of(other) == ("key", 3, (2, 8), 65_536)


def test_options_change_while_workers_live_for_all_of_them(path, tmp_path):
    """As in a rolling deployment: the first worker is of the program's earlier version."""
    fill(path, 3)
    with open_worker(path, max_attempts=5, backoff=(3600, 3600)) as worker:
        tasks = worker.take(3)
        with open_worker(path, max_attempts=1, dead_letters=tmp_path / "dead") as other:
            assert options_of(worker) == options_of(other) == ("any", 1, (3600, 3600), 65_536)
            tasks[0].nack(reason="now the last failure")
        worker.ack(tasks[1:2], durable=True)  # which stores the options anew
    with open_worker(path) as worker:
        assert options_of(worker) == ("any", 1, (3600, 3600), 65_536)
    assert values(tmp_path / "dead") == [b"0"]


def test_dead_letters_change_their_place_while_workers_live(path, tmp_path):
    fill(path, 3)
    with open_worker(path, dead_letters=tmp_path / "one") as worker:
        tasks = worker.take(3)
        tasks[0].reject("broken")
        with open_worker(path, dead_letters=tmp_path / "other"):
            tasks[1].reject("broken")
        tasks[2].reject("broken")
    assert (values(tmp_path / "one"), values(tmp_path / "other")) == ([b"0"], [b"1", b"2"])


def test_a_window_is_made_larger_and_smaller_while_workers_live(path):
    fill(path, 20_000)
    with open_worker(path, window=1_100) as small:
        held = small.take(20_000, timeout=0)
        assert len(held) == 1_100
        with open_worker(path, window=9_000) as large:
            more = large.take(20_000, timeout=0)
            assert len(more) == 7_900
            large.ack(more[:5_000])
            assert len(small.take(20_000, timeout=0)) == 5_000  # its mapping had no room for so many
        small.ack(held)
        held = small.take(20_000, timeout=0)
        with open_worker(path, window=10) as other:
            assert other.take(timeout=0) == []
        small.ack(held)
        assert len(small.take(20_000, timeout=0)) == 10


def test_a_worker_waits_for_room_that_another_one_makes_with_a_larger_window(path):
    fill(path, 3)
    with open_worker(path, window=1) as worker, ThreadPoolExecutor(1) as pool:
        (first,) = worker.take()
        waiting = pool.submit(worker.take, 1, HUNG_SECONDS)
        with open_worker(path, window=2):
            assert sequences(waiting.result()) == [1]
        first.ack()


def test_order_by_key_ends_while_workers_live_and_begins_with_the_records_after_those_passed(path):
    fill(path, 6, [b"a"] * 6)
    with open_worker(path, order="key") as worker:
        held = worker.take(10)
        assert sequences(held) == [0]
        with open_worker(path, order="any") as other:
            held += other.take(2, timeout=0)
            assert sequences(held) == [0, 1, 2]
            with open_worker(path, order="key"):
                held += worker.take(10, timeout=0)
                assert sequences(held) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "options",
    [{"order": "random"}, {"max_attempts": 0}, {"window": 0}, {"window": 1 << 30}, {"backoff": (2, 1)}, {"lease": 0}],
)
def test_wrong_options_are_refused(path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        open_worker(path, **options)


def test_a_missing_subscriber_is_created_or_refused(path):
    with pytest.raises(jlog.JournalNotFound):
        open_worker(path, create=False)
    fill(path)
    with pytest.raises(jlog.SubscriberNotFound):
        open_worker(path, create=False)
    with open_worker(path, start=7) as worker:
        assert sequences(worker.take(100, timeout=0)) == [7, 8, 9]


def test_a_removed_subscriber_leaves_nothing(path):
    fill(path)
    with open_worker(path, order="key") as worker:
        worker.ack(worker.take(4), durable=True)
    jlog.Journal(path).remove_subscriber("billing")
    assert os.listdir(path / "work") == []
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(10))


# --- The files -----------------------------------------------------------------------------------------------------------


def window_of(path):
    return path / "work" / "billing.window"


def test_without_its_window_everything_from_the_committed_position_on_comes_again(path, caplog):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(10)
        worker.ack(tasks[:2] + tasks[5:])
    window_of(path).unlink()
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(2, 10))
    assert "records that were finished may come again" in caplog.text


def test_records_of_a_key_stay_in_order_in_a_window_from_the_durable_copy(path):
    """As it is after another boot."""
    fill(path, 3, [b"a", b"a", b"b"])
    with open_worker(path, order="key") as worker:
        tasks = worker.take(3, timeout=0)
        assert sequences(tasks) == [0, 2]
        worker.ack(tasks[1:], durable=True)
    window_of(path).unlink()
    with open_worker(path) as worker:
        tasks = worker.take(3, timeout=0)
        assert sequences(tasks) == [0]
        tasks[0].ack()
        assert sequences(worker.take(3, timeout=0)) == [1]


@pytest.mark.parametrize("offset", [0, 8, 60, 100])
def test_a_damaged_window_is_told_and_loses_nothing(path, caplog, offset):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(10)
        worker.ack(tasks[:2] + tasks[5:])
    change(window_of(path), offset, b"\xff" * 16)
    with open_worker(path) as worker:
        assert set(sequences(worker.take(100, timeout=0))) >= {2, 3, 4}
    if offset < 60:
        assert "records that were finished may come again" in caplog.text


def test_a_window_cut_short_is_told(path, caplog):
    fill(path)
    with open_worker(path) as worker:
        worker.ack(worker.take(3))
    os.truncate(window_of(path), 100)
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(3, 10))
    assert "it is cut off" in caplog.text


def test_a_window_with_a_second_name_is_left_alone(path, tmp_path, caplog):
    fill(path)
    with open_worker(path) as worker:
        worker.ack(worker.take(3))
    other = tmp_path / "other"
    os.link(window_of(path), other)
    before = other.read_bytes()
    with open_worker(path) as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(3, 10))
    assert other.read_bytes() == before
    assert "it is a copy" in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda window: window.symlink_to(os.devnull)])
def test_what_is_not_a_file_in_the_place_of_the_window_is_named(path, make):
    fill(path)
    with open_worker(path) as worker:
        worker.ack(worker.take(3))
    window_of(path).unlink()
    make(window_of(path))
    with pytest.raises(jlog.JournalError, match=r"billing\.window"):
        open_worker(path)
    os.rmdir(window_of(path)) if window_of(path).is_dir() else window_of(path).unlink()
    with open_worker(path) as worker:
        assert worker.committed == 3


def test_in_a_copy_everything_from_the_committed_position_on_comes_again(path, tmp_path, caplog):
    fill(path)
    with open_worker(path, order="key") as worker:
        tasks = worker.take(10)
        worker.ack(tasks[:2] + tasks[5:], durable=True)
    shutil.copytree(path, tmp_path / "copy")
    with jlog.Worker(tmp_path / "copy", "billing") as worker:
        assert options_of(worker)[0] == "key"
    with jlog.Worker(tmp_path / "copy", "billing") as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(2, 10))
    assert "it is a copy" in caplog.text


def test_a_window_removed_under_living_workers_is_refused_to_new_ones(path):
    fill(path)
    with open_worker(path) as worker:
        tasks = worker.take(3)
        window_of(path).unlink()
        with pytest.raises(jlog.JournalLocked, match="it was removed"):
            open_worker(path)
        worker.ack(tasks)
        assert worker.committed == 3


# --- Waiting -------------------------------------------------------------------------------------------------------------


def test_a_waiting_worker_gets_what_is_appended(path):
    with jlog.Writer(path) as writer, open_worker(path) as worker:
        found = []
        thread = threading.Thread(target=lambda: found.extend(worker.take(timeout=30)))
        thread.start()
        writer.append(b"late")
        thread.join()
        assert [task.value for task in found] == [b"late"]


def test_a_waiting_worker_gets_what_another_gives_back(path):
    fill(path, 1)
    with open_worker(path) as one, open_worker(path) as other:
        (task,) = one.take()
        found = []
        thread = threading.Thread(target=lambda: found.extend(other.take(timeout=30)))
        thread.start()
        task.nack(delay=0)
        thread.join()
        assert sequences(found) == [0]


@pytest.mark.parametrize("timeout", [0, None])
def test_a_worker_tells_that_its_journal_was_made_anew(path, timeout):
    fill(path, 1)
    with open_worker(path) as worker:
        finish_all(worker)
        shutil.rmtree(path)
        fill(path, 1)
        with pytest.raises(jlog.JournalMoved, match="another journal"):
            take_some(worker, timeout)


def test_close_ends_a_take_that_waits(path):
    jlog.Journal.create(path)
    worker = open_worker(path)
    raised = []

    def take():
        try:
            worker.take()
        except jlog.JournalClosed as error:
            raised.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    while not thread.is_alive():
        pass
    worker.close()
    thread.join()
    assert raised


def test_after_a_rewind_a_record_that_is_rejected_again_has_another_letter(path, tmp_path):
    fill(path, 1)
    for _ in range(2):
        with open_worker(path, dead_letters=tmp_path / "dead") as worker:
            worker.take()[0].reject("broken")
        jlog.Journal(path).set_subscriber("billing", 0)
    assert len(jlog.Journal(tmp_path / "dead")) == 2


def test_workers_that_go_on_do_not_expire_while_a_delayed_record_holds_their_position(path):
    with jlog.Writer(path, **SMALL) as writer, open_worker(path) as worker:
        writer.append(b"delayed")
        worker.take()[0].nack(delay=3600)
        before = position(path).moved_us
        assert worker.take(timeout=0) == []
        assert position(path).moved_us == before, "nothing was finished"
        for _ in range(2):
            writer.append(b"value")
            worker.take()[0].ack()
            assert worker.take(timeout=0.01) == []
            found = position(path)
            assert (found.sequence, found.moved_us > before) == (0, True)
            before = found.moved_us


def test_a_backup_has_the_options_and_everything_from_the_committed_position_on(path, tmp_path):
    fill(path)
    with open_worker(path, order="key", max_attempts=7) as worker:
        tasks = worker.take(10)
        worker.ack(tasks[:2] + tasks[5:], durable=True)
        jlog.Journal(path).backup(tmp_path / "copy")
    with jlog.Worker(tmp_path / "copy", "billing") as worker:
        assert sequences(worker.take(100, timeout=0)) == list(range(2, 10))
        assert options_of(worker)[:2] == ("key", 7)


# --- Lost and damaged records -----------------------------------------------------------------------------------------


def test_removed_records_raise_position_lost_once(path):
    fill(path, 300, **SMALL, retention=jlog.Retention(keep_for_subscribers=False, max_bytes=16 << 10))
    with open_worker(path) as worker:
        held = worker.take(2)
        with jlog.Writer(path) as writer:
            for _ in range(40):
                writer.extend([b"x" * 100] * 50)
        first = jlog.Journal(path).first_sequence
        assert first > 300
        with pytest.raises(jlog.PositionLost) as lost:
            finish_all(worker)
        assert lost.value.first_sequence >= first
        (task,) = worker.take(timeout=0)
        assert task.sequence == lost.value.first_sequence
        assert worker.committed == 0
        worker.ack(held)  # what is in work can still be finished
        assert worker.committed == task.sequence


def test_a_removed_record_that_is_free_again_raises_position_lost_once(path):
    fill(path, 300, **SMALL, retention=jlog.Retention(keep_for_subscribers=False, max_bytes=16 << 10))
    with open_worker(path) as worker:
        first, second = worker.take(2)
        with jlog.Writer(path) as writer:
            for _ in range(40):
                writer.extend([b"x" * 100] * 50)
        first.nack(delay=0)
        second.nack(delay=0)
        with pytest.raises(jlog.PositionLost):
            worker.take(timeout=0)
        assert worker.committed >= jlog.Journal(path).first_sequence
        assert worker.take(timeout=0)


def test_a_loss_is_told_by_the_next_take_where_the_position_cannot_be_written(path):
    fill(path, 300, **SMALL, retention=jlog.Retention(keep_for_subscribers=False, max_bytes=16 << 10))
    with open_worker(path) as worker:
        finish_all(worker)
        with jlog.Writer(path) as writer:
            for _ in range(40):
                writer.extend([b"x" * 100] * 50)
        with no_file_may_grow(), pytest.raises(OSError, match="File too large"):
            worker.take(timeout=0)
        with pytest.raises(jlog.PositionLost):
            worker.take(timeout=0)
        assert worker.take(timeout=0)


def take_at_once(worker):
    return worker.take(timeout=0)


def take_async(worker):
    return asyncio.run(worker.take_async(timeout=0))


@pytest.mark.parametrize("take", [take_at_once, take_async])
@pytest.mark.parametrize("space", [nullcontext, no_file_may_grow])
def test_a_loss_before_a_worker_opens_is_told_by_its_first_take(path, take, space):
    fill(path, 300, **SMALL, retention=jlog.Retention(keep_for_subscribers=False, max_bytes=16 << 10))
    with open_worker(path) as worker:
        worker.ack(worker.take(2))
        with jlog.Writer(path) as writer:
            for _ in range(40):
                writer.extend([b"x" * 100] * 50)
        with space():
            second = open_worker(path)
        with second, pytest.raises(jlog.PositionLost) as lost:
            take(second)
    with open_worker(path) as worker:
        (task,) = worker.take(timeout=0)
        assert task.sequence == lost.value.first_sequence == jlog.Journal(path).first_sequence


@pytest.mark.damage
def test_damage_is_told_until_it_is_skipped(path):
    with jlog.Writer(path, precommit=0) as writer:
        for i in range(10):
            writer.append(b"record %d" % i)
    (segment,) = path.glob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"record 4", b"record X"))
    with open_worker(path) as worker:
        held = worker.take(100, timeout=0)
        assert sequences(held) == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(jlog.CorruptJournal):
                worker.take(timeout=0)
        assert worker.skip_damage().records_lost == 1
        assert sequences(worker.take(100, timeout=0)) == [5, 6, 7, 8, 9]


def test_a_smaller_window_is_joined_by_other_workers(path, caplog):
    fill(path, 3_000)
    with open_worker(path, window=4_000) as worker:
        assert len(worker.take(3_000, timeout=5)) == 3_000
    with open_worker(path, window=100) as worker, open_worker(path) as other:
        assert len(worker.take(10, timeout=5)) == len(other.take(10, timeout=5)) == 10
    with open_worker(path):
        assert not caplog.records


def test_a_worker_closed_in_the_middle_of_a_rejection_has_finished_the_record(path):
    fill(path, 1)
    worker = open_worker(path)
    (task,) = worker.take(1, timeout=5)

    def close_meanwhile(committed):
        worker.close()
        return committed + 2

    worker._source.policy.passed = (
        close_meanwhile  # retention looks in the middle of a finish, where another thread may close the worker
    )
    task.reject("broken")
    with open_worker(path) as other:
        assert other.committed == 1


def test_a_worker_that_nobody_refers_to_is_freed_at_once(path):
    fill(path, 3)
    gc.disable()
    try:
        worker = open_worker(path)
        worker.ack(worker.take(2))
        del worker
        with jlog.Reader(path, "billing") as reader:
            assert reader.position == 2
    finally:
        gc.enable()
