"""Steps under the append lock: a record goes into the open block, a block goes to its place, and the journal rotates to the
next block.

Models: pyx/append/append.pyx, pyx/append/direct_block.pyx, pyx/append/compression.pyx, pyx/buffer/publish.h.
"""

from takeover import finish
from world import APPEND, CAPACITY, CARRIES_STATE, SYNC, put, step
from write_back import close_later, leave_to_drain, must_drain


@step("append")
@step("large")
def encode(m, p):
    """Encodes the record. A large one fits only into an empty body."""
    word = m.open_slot()[2]
    if m.closed == m.generation or len(word) == CAPACITY or (word and p.then == "large"):
        return close_later(m, p) if m.spec.defers else close(m, p)
    p.generation = -1
    if m.wrong("publish before the bytes"):
        publish(m, p)
        p.pc = "late"
    else:
        m.set_cell(len(word), m.spec.programs[p.pid][p.op][1])
        p.pc = "publish"


@step("publish")
def publish(m, p):
    """Publishes the record. It exists from this store on, for readers and for a takeover."""
    place, first, word = m.open_slot()
    m.set_slot(m.generation & 1, (place, first, (*word, m.spec.programs[p.pid][p.op][1])))
    p.pc = "unlock"


@step("direct")
@step("state")
def direct(m, p):
    """Writes a block that was never in the buffer. A block with state is written like this."""
    if must_drain(m) and not m.wrong("a direct block after one that is not written"):
        return leave_to_drain(m, p)
    place, first, word = m.open_slot()
    if word:  # needs a rotation of its own: a takeover knows only one place
        if m.wrong("one rotation for the open block and a direct one"):
            after = place[0], place[1] + m.size(word)
            m.write(after, (first + len(word), m.spec.programs[p.pid][p.op][1:]))
        return close(m, p)
    m.direct = m.generation
    mark_state(m, p)
    p.copy, p.then, p.pc = m.spec.programs[p.pid][p.op][1:], "unlock", "write"


@step("flush")
def flush(m, p):
    """Ends when the block that it found is gone. Waiting for an *empty* block might never end. An immutable block is not gone."""
    if m.spec.defers:
        if p.looked < 0:
            p.looked = m.generation
        over = m.wrong("flush is done though its block is immutable") and m.generation > p.looked
        if must_drain(m) and m.unwritten <= p.looked and not over:
            return leave_to_drain(m, p)
        if m.open_slot()[2] and m.generation == p.looked:
            return close(m, p)
    elif m.open_slot()[2] and p.generation < 0:
        return close(m, p)
    if p.after == "finish" or not m.wrong("sync lock is taken while append is held"):
        m.words = put(m.words, APPEND, 0)
    if p.after == "finish":
        finish(m, p)
    else:
        p.want, p.pc, p.copy = SYNC, "lock", m.written_end()  # a sync stores the end that it needs


def mark_state(m, p):
    """Marks the state before the block can be published, by this process or by a takeover: a roll must know of it by then."""
    if carries_state(m, p) and not m.wrong("the state is marked after the rotation"):
        m.state = m.generation


def carries_state(m, p):
    program = m.spec.programs[p.pid]
    return p.op < len(program) and program[p.op][0] in CARRIES_STATE


def close(m, p):
    """Writes the open block, which has records, to its place first. p.then is the step to come back to."""
    if not m.spec.lz4:
        p.copy, p.pc = m.body(m.generation)[: len(m.open_slot()[2])], "write"
        return None if m.failures else write(m, p)  # one step less to explore if it cannot fail
    p.generation, p.pc = m.generation, "leave"
    if m.closed == m.generation:
        return leave(m, p)
    m.closed = m.generation


@step("leave")
def leave(m, p):
    m.words = put(m.words, APPEND, 0)
    p.pc = "compress"


@step("compress")
def compress(m, p):
    """Compresses without the lock. If another process rotates meanwhile, this copy is useless, and the generation shows it."""
    p.copy = m.body(p.generation)[: len(m.slots[p.generation & 1][2])]
    p.pc = "lock"


@step("write")
def write(m, p):
    place, first, _ = m.open_slot()
    p.pc = "empty"
    if not m.wrong("rotation before the block is written"):
        m.write(place, (first, p.copy))


@step("write")
def fail(m, p):
    """The write raises, and so does the call. The open block stays open and is written again later. All of it may be in the
    file already. A direct write looks at its place, as a takeover would. If the block is whole, the write has not failed
    (that is the step above), since its numbers could not be given out again. If it is torn, it never becomes whole."""
    if not m.failures:
        return False
    m.failures -= 1
    place, first, _ = m.open_slot()
    if p.then != "unlock" or m.wrong("a direct write that fails does not look at its place"):
        m.write(place, (first, p.copy))
    p.copy, p.after, p.pc = (), "failed", "unlock"


@step("empty")
def empty_slot(m, p):
    """Empties the word before the header is filled: a power loss may catch the page between any two stores."""
    parity = m.generation + 1 & 1
    if m.wrong("closed is a flag that the rotation clears first"):
        m.closed = -1
    if m.wrong("direct is a flag that the rotation clears first"):
        m.direct = -1
    if m.wrong("header is filled before the word is emptied"):
        m.set_slot(parity, (*next_block(m, p), m.slots[parity][2]))
    else:
        m.set_slot(parity, (None, None, ()))
    p.pc = "fill"


@step("fill")
def fill_slot(m, p):
    m.set_slot(m.generation + 1 & 1, (*next_block(m, p), ()))
    p.pc = "turn"


def next_block(m, p):
    (name, offset), first, _ = m.open_slot()
    if p.file:
        name, offset = first, 0
    if p.copy is None:
        return (name, offset), first  # a roll
    return (name, offset + m.size(p.copy)), first + len(p.copy)


@step("turn")
def turn(m, p):
    """Stores the generation last. Block g is in the segment or marked as unwritten, and g + 1 is open. Only now the body of g
    - 1 is used again."""
    m.generation += 1
    late = p.copy and m.wrong("rotation before the block is written")
    late = late or (p.after == "write back" and m.wrong("the intent comes after the rotation"))
    if late or (carries_state(m, p) and m.wrong("the state is marked after the rotation")):
        p.pc = "late"
    else:
        p.copy, p.file, p.pc = (), False, p.then


@step("late")
def write_late(m, p):
    """Only wrong designs come here: they publish first, and do afterwards what should have come before."""
    if m.wrong("publish before the bytes"):
        place, first, word = m.open_slot()
        m.set_cell(len(word) - 1, word[-1])
        p.pc = "unlock"
    elif m.wrong("the intent comes after the rotation"):
        m.unwritten, p.copy, p.pc = m.generation - 1, (), p.then
    elif m.wrong("the state is marked after the rotation"):
        m.state, p.copy, p.file, p.pc = m.generation - 1, (), False, p.then
    else:
        place, first, _ = m.slots[m.generation - 1 & 1]
        m.write(place, (first, p.copy))
        p.copy, p.pc = (), p.then
