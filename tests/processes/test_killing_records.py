"""Records that kill the processes which work on them: they are rejected, take no others with them, and keep nobody waiting."""

from __future__ import annotations

import pytest

import jlog
from patience import wait_until
from processes.children import Died

ATTEMPTS = 3
IN_TURN = ("with", "plain")  # one record after the other
AT_ONCE = ("threads", "coroutines")


def fill(path, values):
    with jlog.Writer(path) as writer:
        writer.extend(values)


def among(count, *killers, value=b"kill"):
    return [value if i in killers else b"short" for i in range(count)]


def lag(path):
    return jlog.Journal(path).subscribers()["billing"].lag


def letters(tmp_path):
    with jlog.Reader(tmp_path / "dead") as reader:
        return [int(dict(record.headers)["jlog.work.sequence"]) for record in reader]


def lines(tmp_path):
    """Returns what was done: (sequence, failures before)."""
    return [tuple(map(int, line.split())) for line in (tmp_path / "log").read_text().splitlines()]


def work_off(spawn, path, tmp_path, how, most=1, crew=2, **options):
    """Works until every record is finished, with new processes for those that die. Returns how many died."""
    options = {"max_attempts": ATTEMPTS, "dead_letters": str(tmp_path / "dead"), "backoff": [0.2, 0.4], **options}
    deaths = 0
    jlog.Worker(path, "billing").close()
    while lag(path):
        children = [spawn() for _ in range(crew)]
        for child in children:
            child.start("work_off", how, most, str(path), str(tmp_path), options)
        for child in children:
            try:
                child.result()
            except Died:
                deaths += 1
    return deaths


@pytest.mark.parametrize("how", IN_TURN)
@pytest.mark.parametrize("most", [1, 10, 100])
def test_a_record_that_kills_is_rejected_and_what_was_only_held_beside_it_never_fails(spawn, path, tmp_path, how, most):
    fill(path, among(60, 7))
    deaths = work_off(spawn, path, tmp_path, how, most)
    assert deaths == ATTEMPTS
    assert letters(tmp_path) == [7]
    done = lines(tmp_path)
    assert {sequence for sequence, _ in done} == set(range(60)) - {7}
    assert {failures for _, failures in done} == {0}


@pytest.mark.parametrize("how", IN_TURN)
def test_two_records_that_kill_and_are_held_by_one_worker_are_both_rejected(spawn, path, tmp_path, how):
    fill(path, among(30, 3, 5))
    deaths = work_off(spawn, path, tmp_path, how, 100, crew=1)
    assert deaths == 2 * ATTEMPTS
    assert sorted(letters(tmp_path)) == [3, 5]
    assert {failures for _, failures in lines(tmp_path)} == {0}


@pytest.mark.parametrize("how", AT_ONCE)
def test_a_record_that_kills_parts_from_those_in_work_beside_it(spawn, path, tmp_path, how):
    fill(path, among(40, 2))
    work_off(spawn, path, tmp_path, how, 4, max_attempts=5)
    assert letters(tmp_path) == [2]
    assert {sequence for sequence, _ in lines(tmp_path)} == set(range(40)) - {2}


@pytest.mark.parametrize("how", AT_ONCE)
def test_a_record_that_kills_late_is_blamed_and_not_the_short_ones_that_began_after_it(spawn, path, tmp_path, how):
    fill(path, among(5, 2, value=b"kill late"))  # it appends others, and waits until they are done
    deaths = work_off(spawn, path, tmp_path, how, 4, crew=1)
    assert deaths == ATTEMPTS
    assert letters(tmp_path) == [2]
    assert {sequence for sequence, _ in lines(tmp_path)} == set(range(5 + ATTEMPTS * 20)) - {2}


def test_a_long_record_beside_one_that_kills_fails_no_oftener_than_its_process_dies(spawn, path, tmp_path):
    """It has begun each time before the other one kills, which stops with the third death."""
    fill(path, [b"long", b"kill thrice beside the long one"])
    deaths = work_off(spawn, path, tmp_path, "threads", 2, crew=1, max_attempts=None)
    failed = dict(lines(tmp_path))
    assert deaths == 3
    assert failed[1] == 3
    assert failed[0] <= 3


def test_a_fleet_with_a_long_record_in_each_process_goes_on_after_a_kill(spawn, path, tmp_path):
    fill(path, [b"of the victim"])
    victim = spawn()
    victim.call("open_worker", "w", str(path), {})
    assert victim.call("take", "w") == [[0, 1]]
    children = []
    with jlog.Writer(path) as writer:
        for number in (1, 2):
            writer.append(b"wait")
            children.append(spawn())
            children[-1].start("work_off", "threads", 4, str(path), str(tmp_path), {})
            wait_until((tmp_path / f"waits {number}").exists)
        victim.kill()
        writer.extend([b"short"] * 50)
        wait_until(lambda: (tmp_path / "log").exists() and {0, *range(3, 53)} <= {sequence for sequence, _ in lines(tmp_path)})
    (tmp_path / "go").touch()
    for child in children:
        child.result()
    assert lag(path) == 0


def test_what_a_killed_worker_held_comes_at_once_to_one_that_always_holds_something(spawn, path):
    fill(path, [b"job"] * 10_000)
    victim = spawn()
    victim.call("open_worker", "w", str(path), {})
    assert victim.call("take", "w") == [[0, 1]]
    with jlog.Worker(path, "billing") as worker:
        held = worker.take(4)
        victim.kill()
        while (task := held.pop(0)).sequence != 0:
            task.ack()
            held += worker.take(1, timeout=0)
        assert (task.attempt, task.failures) == (2, 1)


def test_what_was_not_begun_comes_again_without_a_failure(spawn, path):
    fill(path, [b"job"] * 6)
    victim = spawn()
    victim.call("open_worker", "w", str(path), {})
    victim.call("take", "w", 5)
    victim.call("begin", "w", 1)
    victim.call("begin", "w", 3)
    victim.call("finish", "w", 3)
    victim.kill()
    with jlog.Worker(path, "billing") as worker:
        found = {task.sequence: (task.attempt, task.failures) for task in worker.take(10)}
    assert found == {0: (2, 0), 1: (2, 1), 2: (2, 0), 4: (2, 0), 5: (1, 0)}


@pytest.mark.usefixtures("failpoints")
def test_what_is_dropped_while_a_stopped_process_has_the_lock_is_given_back_later(spawn, path):
    """A finalizer drops the task meanwhile, and does not wait."""
    fill(path, [b"job"] * 4)
    child = spawn("window.finishing=stop@1")
    child.call("open_worker", "w", str(path), {})
    child.call("take", "w")
    with jlog.Worker(path, "billing") as worker:
        tasks = worker.take(2)
        child.start("finish", "w", 0)
        child.is_stopped()  # under the window's lock
        del tasks
        child.goes_on()
        again = worker.take(3, timeout=0)
        assert {(task.sequence, task.attempt, task.failures) for task in again} == {(1, 1, 0), (2, 1, 0), (3, 1, 0)}


@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_dropped_while_the_lock_was_not_free_comes_back_by_any_worker(spawn, path, is_killed):
    """The worker that has dropped it takes nothing any more, or is killed: then what it had in work has failed."""
    fill(path, [b"job"] * 4)
    holder, dropping = spawn("window.finishing=stop@1"), spawn()
    for child, count in ((holder, 1), (dropping, 3)):
        child.call("open_worker", "w", str(path), {})
        child.call("take", "w", count)
    dropping.call("begin", "w", 1)
    holder.start("finish", "w", 0)
    holder.is_stopped()  # under the window's lock
    dropping.call("drop", "w", 2)
    if is_killed:
        dropping.kill()
    holder.goes_on()
    with jlog.Worker(path, "billing") as worker:
        expected = {1: 1, 2: 0, 3: 0} if is_killed else {2: 0}
        found = {}
        while found.keys() < expected.keys():
            for task in worker.take(len(expected) - len(found), timeout=1):
                found[task.sequence] = task.failures
                task.ack()
        assert found == expected
