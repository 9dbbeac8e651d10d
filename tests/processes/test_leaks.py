"""Descriptors, mappings and memory stay flat, whatever is done over and over.

`JLOG_TURNS=10000 pytest tests/processes/test_leaks.py` does each ten thousand times.
"""

import os

import pytest

from elsewhere import run_python
from patience import HUNG_SECONDS

TURNS = int(os.environ.get("JLOG_TURNS", "150"))
GROWTH = 2 << 20  # bytes of memory, however many turns: what the allocator keeps for itself
PRELUDE = """
import gc
from patience import wait_until
path = {path!r}
OPTIONS = dict(precommit=4096, segment_bytes=8192)

def raises(kind, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind:
        return
    raise AssertionError(f"no {{kind.__name__}}")

def held():
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum(path in line for line in maps)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return len(os.listdir("/proc/self/fd")), mapped, resident
"""
LOOP = """
def turns(count):
    for turn in range(count):
        again(turn)

def synced():  # a writer keeps the descriptors of segments that are not synced, a reader that of the one it is at
    if "writer" in globals():
        writer.sync()
    return held()

turns({warm})
before = synced()
turns({turns})
# A thread in the background may still have what it works on.
wait_until(lambda: synced()[0] <= before[0] + 1, seconds=100, complaint=f"{{before[0]}} descriptors were open, and more are")
after = synced()
assert after[1] <= before[1], f"{{before[1]}} mappings were there, and {{after[1]}} are"
assert after[2] - before[2] < {growth}, f"{{after[2] - before[2]}} bytes more in {turns} turns"
"""
THINGS = {
    "rolls": """
writer = jlog.Writer(path, **OPTIONS)
reader = jlog.Reader(path, "billing")
def again(turn):
    writer.append(b"v" * 100)
    writer.roll()
    reader.read(10)
    reader.commit()
""",
    "opens": """
def again(turn):
    with jlog.Writer(path, **OPTIONS) as writer:
        writer.append(b"v")
    with jlog.Reader(path, "billing") as reader:
        reader.read(10)
        reader.commit(durable=turn % 10 == 0)
    journal = jlog.Journal(path)
    journal.stats(), journal.segments()
""",
    "drops": """
def again(turn):
    writer = jlog.Writer(path, sync="interval", sync_interval=0.001, **OPTIONS)
    writer.append(b"v")
    reader = jlog.Reader(path, "billing")
    next(iter(reader))
""",
    "opens that fail": """
holder = jlog.Writer(path, exclusive=True, **OPTIONS)
from jlog._core.system.lock import RANGES, LockFile
other = jlog.Writer(path + "-other", **OPTIONS)
other.close()
opening = LockFile(path + "-other/lock")
assert opening.acquire(RANGES["open"], timeout=0)
reading = jlog.Reader(path, "billing")
def again(turn):
    raises(jlog.JournalLocked, jlog.Writer, path + "-other", lock_timeout=0)
    raises(jlog.JournalNotFound, jlog.Writer, path + "-missing", create=False)
    raises(jlog.SubscriberBusy, jlog.Reader, path, "billing")
    raises(jlog.SubscriberNotFound, jlog.Reader, path, "missing", create=False)
    raises(ValueError, jlog.Writer, path, lock_timeout=-1)
""",
    "errors": """
writer = jlog.Writer(path, **OPTIONS)
writer.append(b"v")
reader = jlog.Reader(path, "billing")
def again(turn):
    raises(TypeError, writer.append, "text")
    raises(TypeError, writer.extend, [b"v", 1])
    raises(ValueError, writer.extend, [b"v"], keys=[])
    raises(jlog.RecordTooLarge, writer.extend, [], state={b"k": bytes(70_000)})
    raises(ValueError, reader.commit, 1000)
    raises(jlog.CheckpointNotFound, reader.rewind, "missing")
    raises(jlog.JournalError, jlog.Reader(path).commit)
""",
    "failing system calls": """
writer = jlog.Writer(path, **OPTIONS)
def again(turn):
    for point in ("file.allocate", "file.write_block", "file.rename"):
        os.environ["JLOG_FAILPOINTS"] = f"{point}=28@0"
        try:
            writer.extend([b"v" * 1000] * 4)
            writer.roll()
        except OSError:
            pass
        finally:
            del os.environ["JLOG_FAILPOINTS"]
        writer.roll()
""",
    "forks": """
writer = jlog.Writer(path, **OPTIONS)
reader = jlog.Reader(path, "billing")
def again(turn):
    writer.append(b"v")
    if turn % 10:
        return
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            count = held()[0]
            writer.append(b"child")  # opens the journal anew
            writer.close()
            status = held()[0] != count
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert reader.read(20)
""",
    "checkpoints and cleaning": """
writer = jlog.Writer(path, **OPTIONS)
reader = jlog.Reader(path, "billing")
journal = jlog.Journal(path)
def again(turn):
    writer.extend([b"v" * 100] * 5)
    reader.read(4)
    reader.checkpoint("here")
    reader.rewind("here")
    reader.commit()
    journal.set_checkpoint("there", "end")
    journal.clean(), journal.subscribers(), journal.info()
    if turn % 10 == 0:
        writer.roll(), journal.verify()
""",
}


@pytest.mark.usefixtures("failpoints")
@pytest.mark.timeout(max(300, TURNS))
@pytest.mark.parametrize("things", THINGS.values(), ids=THINGS.keys())
def test_nothing_is_left_of(in_memory, things):
    code = PRELUDE.format(path=str(in_memory / "j")) + things
    run_python(code + LOOP.format(warm=50, turns=TURNS, growth=GROWTH), seconds=max(HUNG_SECONDS, TURNS))


CLOSED = {
    "Reader": "reader = jlog.Reader(path, 'billing'); list(reader); reader.commit()",
    "tail": "reader = jlog.Reader(path); next(reader.follow()); list(reader.follow(timeout=0.01))",
    "Worker": "reader = jlog.Worker(path, 'work'); reader.take()[0].ack()",
    "Writer": "reader = jlog.Writer(path); reader.append(b'x')",
}


@pytest.mark.parametrize("opened", CLOSED)
def test_what_is_closed_holds_no_file_whoever_still_refers_to_it(in_memory, opened):
    run_python(f"""
import gc
path = {str(in_memory / "j")!r}
jlog.Journal.create(path)
with jlog.Writer(path) as writer:
    writer.append(b"v")
gc.disable()
{CLOSED[opened]}
reader.close()
names = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{fd}}")]
assert not [name for name in names if name.startswith(path)], names
""")


@pytest.mark.damage
def test_the_filename_of_an_error_holds_no_directory_open(in_memory):
    run_python(f"""
path = {str(in_memory / "j")!r}
with jlog.Writer(path) as writer:
    writer.append(b"v")
segment = os.path.join(path, "00000000000000000000.seg")
os.rename(segment, segment + "x")
os.mkdir(segment)
errors = []
for call in (lambda: jlog.Writer(path), lambda: jlog.Reader(path + "x", create=False)):
    try:
        call()
    except (OSError, jlog.CorruptJournal) as error:
        errors.append(getattr(error, "filename", None) or error.path)
assert len(errors) == 2 and {{type(name) for name in errors}} == {{str}}, errors
""")
