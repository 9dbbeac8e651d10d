"""A process's part in a journal, from its opening to its closing, beside its own threads and forks: it is closed once, by
the last that uses it, and nothing of anybody else's is closed with it."""

import os
from functools import partial

import pytest

import exhaustive
from behaviour.journals import values
from elsewhere import Place, run_python
from processes.units import read_all

# Threads change places after each microsecond. Whatever is wrong in any of them ends the process.
PRELUDE = """
import faulthandler, gc, random, threading
faulthandler.enable()
sys.setswitchinterval(1e-6)
wrong = []

def in_threads(*calls):
    def guarded(call):
        try:
            call()
        except BaseException as error:
            wrong.append(error)
    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]

def in_a_fork(call):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0

def append_in_a_fork(path):
    gc.collect()
    with jlog.Writer(path, lock_timeout=60) as writer:
        writer.append(b"child")

def settle():  # what was dropped while its thread was at work is closed by that thread
    gc.collect()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(30)

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def mappings(path):
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)
"""


stress = partial(run_python, within=Place(before=PRELUDE))


def test_writers_dropped_during_maintenance_are_closed_once(tmp_path):
    """The interval is so short that the thread is at work whenever a Writer goes."""
    stress(f"""
path = {str(tmp_path / "j")!r}
OPTIONS = dict(sync="interval", sync_interval=0.001, precommit=4096)
jlog.Writer(path, **OPTIONS).close()

def drop():
    for turn in range(150):
        writer = jlog.Writer(path, **OPTIONS)
        writer.append(b"dropped")
        with jlog.Reader(path, start="end", durable_only=True) as reader:
            while reader.position < writer.next_sequence - turn % 2:  # the thread is about to sync, or has done it
                reader.seek("end")
        del writer

before = descriptors()
in_threads(drop, drop)
settle()
assert mappings(path) == 0
jlog.Writer(path).close()
assert descriptors() == before, (descriptors(), before)
""")
    assert len(values(tmp_path / "j")) == 300


def test_closing_closes_no_descriptor_of_others(tmp_path):
    stress(f"""
path = {str(tmp_path / "j")!r}
OPTIONS = dict(sync="interval", sync_interval=0.001, precommit=4096)
done = threading.Event()

def drop():
    try:
        for _ in range(150):
            writer = jlog.Writer(path, **OPTIONS)
            writer.append(b"dropped")
            threading.Event().wait(0.001)  # as long as its thread does
            del writer
    finally:
        done.set()

def open_files():
    name = {str(tmp_path / "other")!r}
    while not done.is_set():
        files = [os.open(name, os.O_RDWR | os.O_CREAT) for _ in range(5)]
        inodes = {{os.fstat(fd).st_ino for fd in files}}
        assert inodes == {{os.stat(name).st_ino}}, "a descriptor is another file's"
        for fd in files:
            os.close(fd)  # EBADF where somebody else has

in_threads(drop, open_files)
""")


def test_a_call_that_outlives_its_writer_closes_what_it_used(tmp_path):
    stress(f"""
path = {str(tmp_path / "j")!r}
acknowledged = []

def outlive():
    for _ in range(60):
        writer = jlog.Writer(path, precommit=4096, sync="append")
        stopped = threading.Event()
        def append(writer=writer, stopped=stopped):
            try:
                while True:
                    acknowledged.append(writer.append(b"value"))
                    acknowledged.append(writer.extend([b"value"], keys=[b"key"]))
            except jlog.JournalClosed:
                stopped.set()
        thread = threading.Thread(target=append)
        thread.start()
        while not acknowledged:
            os.sched_yield()
        writer.close()
        thread.join()
        assert stopped.is_set()

in_threads(outlive)
assert mappings(path) == 0
with jlog.Reader(path) as reader:
    assert {{record.sequence for record in reader}} >= set(acknowledged)
assert len(set(acknowledged)) == len(acknowledged)
""")


def test_a_call_whose_writer_was_closed_closes_the_journal(tmp_path):
    """After a roll the journal cleans, and the writer is closed there. Then only the call still refers to the attachment."""
    stress(f"""
from jlog.care import cleaning
path = {str(tmp_path / "j")!r}
writer = jlog.Writer(path)
cleaning.clean_if_free = lambda path, **_: writer.close()
writer.append(b"before the roll")
writer.roll()
assert "closed" in repr(writer) and mappings(path) == 0
""")


def test_a_call_beside_a_close_raises_or_has_done_its_work(tmp_path):
    """Another thread closes the writer anywhere within the call."""
    stress(f"""
path = {str(tmp_path / "j")!r}
numbers = random.Random(1)
acknowledged = []
CALLS = [
    lambda writer: acknowledged.append(writer.append(b"value")),
    lambda writer: acknowledged.append(writer.append(b"value", key=b"key")),
    lambda writer: acknowledged.append(writer.extend([bytearray(b"v"), b"w"])),
    lambda writer: acknowledged.append(writer.extend([b"v"], state={{b"k": b"v"}})),
    lambda writer: writer.flush(),
    lambda writer: writer.sync(),
    lambda writer: writer.roll(),
    lambda writer: writer.next_sequence,
    lambda writer: writer.precommit,
]
for _ in range(100):
    writer = jlog.Writer(path, precommit=numbers.choice([0, 4096]))
    ready = threading.Barrier(3)
    def call(what, writer=writer, ready=ready):
        ready.wait()
        try:
            what(writer)
            what(writer)
        except jlog.JournalClosed:
            pass
    in_threads(lambda: call(numbers.choice(CALLS)), lambda: call(numbers.choice(CALLS)),
               lambda: call(lambda writer: writer.close()))
assert mappings(path) == 0
""")


def test_a_writer_that_could_not_be_opened_leaves_nothing_open(tmp_path):
    stress(f"""
path = {str(tmp_path / "j")!r}
jlog.Writer(path).close()
holder = jlog.Writer(path, exclusive=True)
page = os.open(path + "/precommit", os.O_RDWR)
before, kept = descriptors(), []
# Another page: a process that opens now finds that it is not the one that the writers share.
inode = os.pread(page, 8, 56)
os.pwrite(page, bytes(8), 56)
def fail_to_open():
    count = descriptors()
    for _ in range(50):
        try:
            jlog.Writer(path)
        except jlog.JournalError as error:
            kept.append(error)  # with all that its frames refer to
    assert len(kept) == 50
    assert (descriptors(), mappings(path)) == (count, 1)

in_a_fork(fail_to_open)
os.pwrite(page, inode, 56)
holder.close()
assert jlog.Writer(path, lock_timeout=0).append(b"value") == 0
""")


def test_a_writer_opened_beside_the_last_close_keeps_its_page(tmp_path):
    stress(f"""
path = {str(tmp_path / "j")!r}
from jlog._core.write import attachment
from jlog.system import filesystem
check_local, opened, entered = filesystem.check_local, [], threading.Event()

class Os:
    def __getattr__(self, name):
        return getattr(os, name)

    def ftruncate(self, fd, size):  # in the middle of a close, at which any other thread may run
        if not entered.is_set():
            opener.start()
            assert entered.wait(60)
        os.ftruncate(fd, size)

def check_and_tell(path):  # what an opening does before it waits for the closing
    check_local(path)
    entered.set()

first = jlog.Writer(path)
first.append(b"first")
opener = threading.Thread(target=lambda: opened.append(jlog.Writer(path)))
attachment.os, filesystem.check_local = Os(), check_and_tell
first.close()
opener.join()
assert opened[0].append(b"second") == 1
opened[0].close()
""")


@pytest.mark.parametrize("forks", [20])
def test_a_fork_between_opening_and_closing_harms_nobody(tmp_path, forks):
    stress(f"""
path = {str(tmp_path / "j")!r}
OPTIONS = dict(sync="interval", sync_interval=0.001, precommit=4096)
done = threading.Event()

def drop():
    while not done.is_set():
        jlog.Writer(path, **OPTIONS).append(b"parent")

def fork():
    try:
        for _ in range({forks}):
            in_a_fork(lambda: append_in_a_fork(path))
    finally:
        done.set()

in_threads(drop, drop, fork)
""")
    assert [value for _, value in read_all(tmp_path / "j")].count(b"child") == forks


SEEDS = int(os.environ.get("JLOG_SEEDS", exhaustive.count(2, 20)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_threads_forks_drops_and_the_collector_harm_nothing(tmp_path, seed):
    """Two journals, four threads, each with its own dice. Objects are in cycles too, so that the collector closes them
    anywhere. `JLOG_SEEDS=100` tries so many orders."""
    stress(f"""
import time
paths = [{str(tmp_path)!r} + name for name in ("/a", "/b")]
acknowledged = {{path: [] for path in paths}}
shared = {{}}
OPTIONS = [dict(sync="interval", sync_interval=0.001), dict(sync="append"), dict(), dict(precommit=0)]

class Owner:
    pass

def make(dice, path):
    return jlog.Writer(path, lock_timeout=30, segment_bytes=8192, **{{"precommit": 4096, **dice.choice(OPTIONS)}})

def step(dice):
    path = dice.choice(paths)
    what = dice.randrange(12)
    if what == 0:
        shared[path, dice.randrange(2)] = make(dice, path)  # the one before is dropped, or still used by others
    elif what < 6:
        writer = shared.get((path, dice.randrange(2)))
        if writer is not None:
            call = dice.choice([lambda: writer.append(b"v"), lambda: writer.append(b"v", key=b"k"),
                                lambda: writer.extend([b"v"], state={{b"k": b"v"}}), lambda: writer.extend([bytearray(9)])])
            acknowledged[path].append(call())
            dice.choice([writer.flush, writer.sync, writer.roll, int, int])()
    elif what == 6:
        writer = shared.pop((path, dice.randrange(2)), None)
        if writer is not None:
            writer.close()
    elif what == 7:
        owner = Owner()
        owner.itself, owner.writer = owner, make(dice, path)
        acknowledged[path].append(owner.writer.append(b"cycle"))
        owner.reader = jlog.Reader(path)
    elif what == 8:
        with jlog.Reader(path, f"s{{threading.get_ident()}}") as reader:
            reader.read(20)
            reader.commit(durable=dice.random() < 0.3)
    elif what == 9:
        gc.collect()
    elif what == 10:
        jlog.Journal(path, lock_timeout=30).stats()
    elif dice.random() < 0.3:
        in_a_fork(lambda: drop_and_append(path))

def drop_and_append(path):
    for writer in list(shared.values()):
        try:
            writer.append(b"child")  # opens the journal anew
        except jlog.JournalClosed:
            continue  # a thread of the parent was closing it
    writer = None
    shared.clear()
    append_in_a_fork(path)

def steps(seed):
    dice = random.Random(seed)
    for _ in range(60):
        try:
            step(dice)
        except jlog.JournalClosed:
            pass  # another thread has closed it

for path in paths:
    jlog.Writer(path, retention=jlog.Retention(delete_read=False)).close()
before = descriptors()
in_threads(*[lambda n=n: steps({seed} * 10 + n) for n in range(4)])
shared.clear()
settle()
assert descriptors() == before, (descriptors(), before)
for path in paths:
    assert mappings(path) == 0
    with jlog.Reader(path) as reader:
        found = [record.sequence for record in reader]
    assert len(set(acknowledged[path])) == len(acknowledged[path])
    assert set(found) >= set(acknowledged[path])
    assert jlog.Journal(path).verify().ok
    assert jlog.Writer(path, exclusive=True, lock_timeout=30).next_sequence >= len(found)
""")


def test_a_position_is_never_written_to_a_reused_descriptor(tmp_path):
    """One thread commits, another one closes the reader and opens a file, which gets the number at once."""
    stress(f"""
path, name = {str(tmp_path / "j")!r}, {str(tmp_path / "other")!r}
with jlog.Writer(path) as writer:
    writer.extend([b"v"] * 10)
for turn in range(300):
    reader = jlog.Reader(path, "billing")
    ready = threading.Barrier(2)

    def commit():
        ready.wait()
        try:
            for sequence in (3, 5, 7, 9):
                reader.commit(sequence, durable=turn % 10 == 0)
        except jlog.JournalClosed:
            pass

    def close():
        ready.wait()
        reader.close()
        files = [os.open(name, os.O_RDWR | os.O_CREAT) for _ in range(3)]
        for fd in files:
            os.close(fd)

    in_threads(commit, close)
    assert os.stat(name).st_size == 0, "a position was written into another file"
    jlog.Journal(path).set_subscriber("billing", 0)
""")
