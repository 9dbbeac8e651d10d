"""The program of a child process: carries out what it is told on its standard input, a line of JSON each, and answers.

Each unit is acknowledged on standard output, with a write of its own, as soon as append or extend has returned: what a
killed process has acknowledged is in the pipe.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import select
import signal
import sys
import threading
from array import array
from itertools import accumulate, count, islice
from typing import TYPE_CHECKING, Any

import calling
from units import Unit, values_of

import jlog
from jlog.care import cleaning, numbering
from jlog.writer import SegmentBuilder
from working import (  # noqa: F401
    begin,
    close_worker,
    delay,
    drop,
    finish,
    finish_durably,
    finish_while_another_thread_takes,
    leave_a_child,
    open_worker,
    reject,
    take,
    take_all,
    what_a_forked_worker_finds,
    work_off,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

writers: dict[str, jlog.Writer] = {}
readers: dict[str, jlog.Reader] = {}
units: dict[str, Any] = {}
threads: list[threading.Thread] = []
built: dict[str, tuple[int, int, SegmentBuilder]] = {}
LONG: dict[str, Any] = {"key": b"key", "headers": [("name", b"value")]}


def tell(kind: str, *content: Any) -> None:
    os.write(1, json.dumps([kind, *content]).encode() + b"\n")


# --- Writing -----------------------------------------------------------------------------------------------------


def open_writer(name: str, path: str, options: dict[str, Any]) -> None:
    writers[name] = jlog.Writer(path, **options)


def pass_over(path: str, sequence: int) -> None:
    numbering.continue_at(path, sequence)


def unpickle_writer(name: str, pickled: str) -> None:
    writers[name] = pickle.loads(bytes.fromhex(pickled))


def open_in_a_thread(name: str, path: str) -> None:
    """Returns once the thread is at it: it waits for another process, and only join() waits for it."""
    opening = threading.Event()

    def open_it() -> None:
        opening.set()
        open_writer(name, path, {})

    threads.append(threading.Thread(target=open_it))
    threads[-1].start()
    opening.wait()


def join() -> None:
    while threads:
        threads.pop().join()


def fails_to_open(path: str, lock_timeout: float) -> str:
    try:
        jlog.Writer(path, lock_timeout=lock_timeout)
    except jlog.JournalError as error:
        return f"{type(error).__name__}: {error}"
    return "it was opened"


def append(name: str, times: int = 1, size: int = 0, writer: str | None = None) -> None:
    """One value a call, by turns in the short form and in the long one, which go into the buffer in ways of their own.
    `writer`: whose object, where `name` has none of its own."""
    for unit in islice(units.setdefault(name, count()), times):
        (value,) = values_of(name, unit, size=size)
        more = LONG if unit % 2 else {}
        tell("unit", *Unit(name, unit, 1, writers[writer or name].append(value, **more)))


def append_once(name: str, numbers: list[int], size: int = 0) -> None:
    """One value a call, each with its number as id."""
    for number in numbers:
        tell("once", number, writers[name].append(b"%d" % number + b" " * size, id=b"%d" % number))


def append_what_there_is_room_for(name: str, times: int, size: int) -> None:
    """Each as often as it takes."""
    for unit in islice(units.setdefault(name, count()), times):
        (value,) = values_of(name, unit, size=size)
        while True:
            try:
                sequence = writers[name].append(value)
                break
            except jlog.JournalFull:
                continue
        tell("unit", *Unit(name, unit, 1, sequence))


def extend(name: str, times: int = 1, parts: int = 3, size: int = 0, state: bool = False, writer: str | None = None) -> None:
    for unit in islice(units.setdefault(name, count()), times):
        values = values_of(name, unit, parts, size, has_state=state)
        stored = {name.encode(): b"%d" % unit} if state else None
        tell("unit", *Unit(name, unit, parts, writers[writer or name].extend(values, state=stored)))


def store(name: str, times: int, size: int = 60_000) -> None:
    """State and no record: under b"alone/" and its name a number that goes up, and so many bytes under a key of all."""
    for number in islice(units.setdefault(f"state of {name}", count()), times):
        writers[name].extend(
            [], state={b"alone/" + name.encode(): b"%d" % number, b"alone/": random.Random(number).randbytes(size)}
        )
        tell("stored", number)


def build(name: str, parts: int = 40, size: int = 1000, pieces: int = 4) -> None:
    """A file with the next unit, which ingest makes a segment."""
    import pyarrow

    unit = next(units.setdefault(name, count()))
    values = values_of(name, unit, parts, size, has_state=True)
    with SegmentBuilder(f"{writers[name].path}.{name}") as file:
        for first in range(0, parts, parts // pieces):
            piece = values[first : first + parts // pieces]
            # pyarrow.array() would import pandas, in each of these processes.
            buffers = [None, pyarrow.py_buffer(array("i", accumulate(map(len, piece), initial=0)))]
            file.add(pyarrow.Array.from_buffers(pyarrow.binary(), len(piece), [*buffers, pyarrow.py_buffer(b"".join(piece))]))
    built[name] = unit, parts, file


def ingest(name: str) -> None:
    unit, parts, file = built[name]
    sequence = jlog.writer.ingest(writers[name], file.path, file.pieces, {name.encode(): b"%d" % unit})
    assert sequence is not None
    tell("unit", *Unit(name, unit, parts, sequence))


def work(name: str, rounds: int, direct: str | None = None) -> None:
    """All sorts of calls. `direct`: the name of a writer that bypasses the buffer."""
    for turn in range(rounds):
        append(name, 3, 100)
        extend(name, 1, 4, 60)
        append(name, 1, 100, direct or name)
        extend(name, 1, 2, 60, True, direct or name)
        if turn % 3 == 1:
            writers[name].flush()
        if turn % 5 == 3:
            writers[name].sync()
        if turn % 7 == 5:
            extend(name, 1, 2, 3000)
        if turn % 4 == 2:
            writers[name].roll()


def append_in_threads(names: list[str], times: int, writer: str) -> None:
    """A thread for each name, all on one object."""
    threads = [threading.Thread(target=append, args=(name, times, 0, writer)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def come_and_go(name: str, path: str, times: int) -> None:
    for turn in range(times):
        open_writer(name, path, {"precommit": (4 << 10) * (turn % 3), "segment_bytes": 4 << 10})
        append(name, 2, 100)
        extend(name, 1, 2, 100)
        close(name)


def flush(name: str) -> None:
    writers[name].flush()


def sync(name: str) -> None:
    writers[name].sync()


def roll(name: str) -> None:
    writers[name].roll()


def close(name: str) -> None:
    (writers.pop(name) if name in writers else readers.pop(name)).close()


# --- Reading -----------------------------------------------------------------------------------------------------


def follow(path: str, last: str, start: str | int = "begin", pace: float | None = None) -> None:
    """Tells every record up to the one with the value `last`."""
    tell("following")
    with jlog.Reader(path, start=start) as reader:
        for record in reader.follow(pace=pace):
            tell("record", record.sequence, record.value.decode())
            if record.value == last.encode():
                return


def sequences(path: str, durable_only: bool = False) -> list[int]:
    with jlog.Reader(path, durable_only=durable_only) as reader:
        return [record.sequence for record in reader]


def close_by_signal(path: str) -> str:
    """Tells what a waiting reader does when SIGINT closes it."""
    with jlog.Reader(path, start="end") as reader:
        before = signal.signal(signal.SIGINT, lambda *_: reader.close())
        try:
            tell("following")
            next(reader.follow())
        except jlog.JournalError as error:
            return type(error).__name__
        finally:
            signal.signal(signal.SIGINT, before)
    return "it came to its end"


def look_again(name: str) -> list[int]:
    """Tells what a reader that stays open finds now."""
    return [record.sequence for record in readers[name]]


def open_reader(name: str, path: str, durable_only: bool = False) -> None:
    readers[name] = jlog.Reader(path, durable_only=durable_only)


def consume(name: str, path: str, last: str) -> None:
    """Reads and commits, up to the record with the value `last`."""
    with jlog.Reader(path, name) as reader:
        tell("following")
        while True:
            batch = reader.read(50, timeout=None)
            reader.commit()
            if last.encode() in batch.values():
                return


def backup(path: str, target: str) -> None:
    jlog.Journal(path).backup(target)


def subscribe(name: str, path: str) -> int:
    readers[name] = jlog.Reader(path, name)
    return readers[name].position


def read(name: str, max_records: int) -> list[int]:
    return [record.sequence for record in readers[name].read(max_records)]


def commit(name: str) -> None:
    readers[name].commit()


def look(path: str) -> dict[str, Any]:
    """Everything that can be asked of a journal that may be damaged: what came of each question."""
    found: dict[str, Any] = {"records": []}
    for question in (look_at_records, look_at_values, look_backward, look_at_journal, look_at_subscriber):
        try:
            question(path, found)
        except jlog.JournalError as error:
            found[question.__name__] = f"{type(error).__name__}: {error}"
        except OSError as error:
            found[question.__name__] = f"OSError: {error}"
    return found


def look_at_records(path: str, found: dict[str, Any]) -> None:
    with jlog.Reader(path) as reader:
        for record in reader:
            found["records"].append([record.sequence, record.value.decode("latin-1")])


def look_at_values(path: str, found: dict[str, Any]) -> None:
    with jlog.Reader(path) as reader:
        found["values"] = [value.decode("latin-1") for value in reader.values()]


def look_backward(path: str, found: dict[str, Any]) -> None:
    with jlog.Reader(path, start="end") as reader:
        found["backward"] = []
        while back := reader.read_backward(1 << 30):
            found["backward"][:0] = [[record.sequence, record.value.decode("latin-1")] for record in reversed(back)]


def look_at_journal(path: str, found: dict[str, Any]) -> None:
    journal = jlog.Journal(path)
    found["state"] = {key.decode("latin-1"): value.decode("latin-1") for key, value in journal.state().items()}
    found["ok"] = journal.verify().ok
    _ = [(segment.first_timestamp, segment.last_timestamp) for segment in journal.segments()]
    _ = journal.info()


def verify(path: str) -> list[list[Any]]:
    """[file, reason, records lost] of each damage."""
    report = jlog.Journal(path).verify()
    return [[os.path.basename(at.path), at.reason, at.records_lost] for at in report.damage]


def look_at_subscriber(path: str, found: dict[str, Any]) -> None:
    with jlog.Reader(path, "billing", create=False) as reader:
        found["subscriber"] = [[record.sequence, record.value.decode("latin-1")] for record in reader]


def write_on(path: str) -> int | str:
    """Opens it for writing, which recovers it, and appends."""
    try:
        with jlog.Writer(path) as writer:
            return writer.append(b"appended after the damage")
    except (jlog.JournalError, OSError) as error:
        return f"{type(error).__name__}: {error}"


# --- Dying -------------------------------------------------------------------------------------------------------


def arm(failpoints: str) -> None:
    """Sets it from now on."""
    os.environ["JLOG_FAILPOINTS"] = failpoints


def clean(path: str) -> list[int]:
    return [segment.first_sequence for segment in jlog.Journal(path).clean()]


def clean_and_die_prepared(path: str, name: str, sequence: int) -> None:
    """The subscriber has passed everything before this sequence, and nobody has cleaned since."""
    kept, cleaning.clean = cleaning.clean, lambda *_, **__: []
    try:
        with jlog.Reader(path, name) as reader:
            reader.commit(sequence)
    finally:
        cleaning.clean = kept


def clean_and_die(path: str, unlinked: int) -> None:
    """Killed before one more file is unlinked by retention."""
    left = count(unlinked, -1)

    remove_file = cleaning.remove_file

    def dying(file: str) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        remove_file(file)

    cleaning.remove_file = dying
    jlog.Journal(path).clean()


def repair(path: str) -> bool:
    return jlog.Journal.repair_at(path).ok


# What a repair and a backup do to files.
STEPS = (
    "copy_file_range",
    "fdatasync",
    "fsync",
    "ftruncate",
    "mkdir",
    "open",
    "pwrite",
    "rename",
    "replace",
    "unlink",
)


def repair_and_die(path: str, step: int) -> bool:
    """A child of this process repairs, and is killed before its so-manieth system call that changes or syncs a file; of the
    bytes that it would write half are written. Whether there were so many."""
    return die_at(step, lambda: jlog.Journal.repair_at(path))


def repair_fails(path: str, failpoint: str) -> bool:
    """A child of this process repairs while a system call of the core fails. Whether an OSError says so."""
    pid = os.fork()
    if pid == 0:
        os.environ["JLOG_FAILPOINTS"] = failpoint
        status = 2
        try:
            status = 0 if jlog.Journal.repair_at(path).ok else 3
        except OSError:
            status = 1
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status not in (0, 1 << 8):
        raise RuntimeError(f"the child ended with {status}")
    return status != 0


def backup_and_die(path: str, target: str, step: int) -> bool:
    return die_at(step, lambda: jlog.Journal(path).backup(target))


def die_at(step: int, call: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        left = count(step, -1)
        for name in STEPS:
            setattr(os, name, dying(name, getattr(os, name), left))
        status = 1
        try:
            call()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status not in (0, signal.SIGKILL):
        raise RuntimeError(f"the child ended with {status}")
    return status == signal.SIGKILL


def dying(name: str, call: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    def step(*arguments: Any, **options: Any) -> Any:
        if name == "open" and not arguments[1] & os.O_CREAT:
            return call(*arguments, **options)
        if next(left) == 0:
            if name == "pwrite":
                call(arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)

    return step


# --- Calling everything, beside one that is stopped ---------------------------------------------------------------

calls: dict[str, calling.Calls] = {}


def prepare_calls(path: str, target: str, lock_timeout: float) -> None:
    calls["all"] = calling.Calls(path, target, lock_timeout)
    calls["all"].before()


def make_calls() -> None:
    calling.make(tell, calls["all"].of_objects_from_before(tell))


def make_calls_of_a_stranger(path: str, target: str, lock_timeout: float) -> None:
    stranger = calling.Calls(path, target, lock_timeout)
    calling.make(tell, stranger.of_new_objects(tell))


# --- Forking -----------------------------------------------------------------------------------------------------


def fork(name: str, path: str) -> dict[str, Any]:
    """Forks a child, which itself tells what it finds. It lives on when its parent dies, until the test closes
    the input of both."""
    if os.fork() == 0:
        tell("forked", os.getpid(), what_a_fork_finds(name, path))
        os.close(1)  # of which the test may wait for the end
        closed = select.poll()
        closed.register(0, 0)  # for its end alone: what can be read is for the parent
        closed.poll()
        os._exit(0)
    return {}


def reap(pid: int) -> None:
    """Waits until this child has ended."""
    os.waitpid(pid, 0)


def what_a_fork_finds(name: str, path: str) -> dict[str, str]:
    found = {}
    calls = {
        **{f"read {reader}": lambda reader=reader: next(iter(readers[reader])) for reader in readers},
        **{f"commit {reader}": lambda reader=reader: readers[reader].commit() for reader in readers},
    }
    for call, make in calls.items():
        try:
            make()
            found[call] = "done"
        except Exception as error:  # noqa: BLE001
            found[call] = type(error).__name__
    writers[name].close()
    for reader in readers.values():
        reader.close()
    return found


def fork_and_append(name: str, path: str, forked: str) -> None:
    """The child appends with the parent's writer, which opens the journal anew, and acknowledges under its own name."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            writers[forked] = writers[name]
            append(forked, 20)
            close(forked)
            status = 0
        finally:
            os._exit(status)
    append(name, 20)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"the child ended with {status}")


def fork_beside_threads(name: str, path: str, forks: int) -> None:
    """Threads append while children are forked, which append for themselves."""
    done = threading.Event()

    def go_on(thread: str) -> None:
        while not done.is_set():
            append(thread, 1, 100, name)

    threads = [threading.Thread(target=go_on, args=(f"t{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        for i in range(forks):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    open_writer(f"f{i}", path, {})
                    append(f"f{i}", 10)
                    close(f"f{i}")
                    status = 0
                finally:
                    os._exit(status)
            _, status = os.waitpid(pid, 0)
            if status != 0:
                raise RuntimeError(f"the child ended with {status}")
    finally:
        done.set()
        for thread in threads:
            thread.join()


def fork_beside_opening(path: str, forks: int) -> None:
    """Children that live on, forked while threads open and close; told are their numbers."""
    sys.setswitchinterval(1e-6)
    done = threading.Event()
    children = []

    def go_on(name: str) -> None:
        while not done.is_set():
            jlog.Reader(path, name).close()

    threads = [threading.Thread(target=go_on, args=(name,)) for name in ("r", "s")]
    for thread in threads:
        thread.start()
    for _ in range(forks):
        pid = os.fork()
        if pid == 0:
            os.close(1)  # of which the test waits for the end
            signal.pause()
        children.append(pid)
    done.set()
    for thread in threads:
        thread.join()
    tell("children", children)


def main() -> None:
    verbs = {name: verb for name, verb in globals().items() if callable(verb)}
    for line in sys.stdin.buffer:
        verb, arguments = json.loads(line)
        try:
            tell("done", verbs[verb](*arguments))
        except BaseException as error:  # noqa: BLE001
            tell(
                "raised",
                type(error).__name__,
                str(error),
                getattr(error, "errno", None),
                getattr(error, "filename", None),
            )


if __name__ == "__main__":
    main()
