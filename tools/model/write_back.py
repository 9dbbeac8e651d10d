"""The immutable block: it is full and published, the journal has rotated away from it, and it is not in its segment yet.

The process that closed it writes it back after it has released the append lock, while others fill the other body. A process
that cannot go on before that drains the buffer: it writes the block back itself. A process that has the write lock never waits
for another lock. As long as there is an immutable block, the open one cannot be closed. So the data that its writer reads does not
change.

Models: pyx/append/write_back.pyx.
"""

from takeover import again, what_closes
from world import APPEND, WRITE, put, step


def must_drain(m):
    """Tells, under the append lock, whether a drain is needed: no block is written after an unwritten one."""
    return m.spec.defers and m.immutable_slot() is not None


def leave_to_drain(m, p):
    """Releases the append lock, and waits for the write lock without it."""
    m.words = put(m.words, APPEND, 0)
    p.want, p.pc = WRITE, "lock"
    if m.wrong("a drain does not take the write lock"):
        p.pc = "drain"


def close_later(m, p):
    """Stores the header first and the intent second, and then rotates. No process waits for the write lock with the append
    lock held."""
    if must_drain(m) and not m.wrong("a block closes after one that is not written"):
        return leave_to_drain(m, p)
    if m.words[WRITE]:
        return leave_to_drain(m, p)
    m.words = put(m.words, WRITE, p.slot + 1)
    m.immutable = m.open_slot()[1:]
    p.pc = "intend"


@step("intend")
def mark_unwritten(m, p):
    """Marks the block before the rotation, since a process that finds the next block open must know of it. Until the
    rotation the intent means nothing."""
    if not m.wrong("the intent comes after the rotation"):
        m.unwritten = m.generation
    p.copy, p.after, p.pc = m.open_slot()[2], "write back", "empty"


@step("drain")
def read_generation_to_drain(m, p):
    """Reads the generation first, with the write lock and without the append lock."""
    p.generation, p.pc = m.generation, "drain intent"
    if m.wrong("a drain reads the intent before the generation"):
        p.copy = (m.unwritten,)


@step("drain intent")
def read_intent_to_drain(m, p):
    """Reads the intent. An intent about the open block itself says nothing: the process that stored it was killed before the
    rotation. The repair removes that intent. Only then another process can close that block, with more records."""
    generation, intent = p.generation, m.unwritten
    if m.wrong("a drain reads the intent before the generation"):
        generation, intent = m.generation, p.copy[0]
    p.generation, p.copy = -1, ()
    if intent == generation - 1 >= 0:
        p.copy, p.pc = what_closes(m, intent), "write back"
    else:
        drained(m, p)


@step("write back")
def write_back(m, p):
    """Writes the block back. If a process was killed before it cleared the intent, the same bytes are written again."""
    place, first, count, generation = p.copy
    m.write(place, (first, m.body(generation)[:count]))
    p.pc = "clear"


@step("write back")
def fail_to_write_back(m, p):
    """The block stays immutable, and the next process that needs it written tries again. For the process that closed it
    nothing has failed: its record is in the next block, and published."""
    if not m.failures:
        return False
    m.failures -= 1
    p.after, p.copy, p.pc = "finish" if p.after == "write back" else "failed", (), "unlock"


@step("write back")
def fail_once_written_back(m, p):
    """The write raises, although all of the block is in the file."""
    if not m.failures:
        return False
    write_back(m, p)
    fail_to_write_back(m, p)


@step("clear")
def clear_intent(m, p):
    m.unwritten, p.copy = -1, ()
    drained(m, p)


def drained(m, p):
    if m.wrong("a drain does not take the write lock") and p.after != "write back":
        return again(m, p)
    p.after, p.pc = "finish" if p.after == "write back" else "again", "unlock"
