"""The closing block: full, switched away from, published, and not in its segment yet.

Who closed it writes it once the append lock is let go, while others fill the other body; whoever cannot go on before it
is written settles that. Who has the write lock never waits for another one. As long as there is a closing block the
open one cannot be closed: so what its writer reads does not change.
"""

from takeover import again, what_closes
from world import APPEND, WRITE, put, step


def must_settle(m):
    """Under the append lock. Nothing is written behind a block that is not."""
    return m.spec.defers and m.closing_slot() is not None


def leave_to_settle(m, p):
    """The write lock is waited for without the append lock."""
    m.words = put(m.words, APPEND, 0)
    p.want, p.pc = WRITE, "lock"
    if m.wrong("who settles does not take the write lock"):
        p.pc = "settle"


def close_later(m, p):
    """The header first, then the note, then the switch; nobody waits for the write lock with the append lock."""
    if must_settle(m) and not m.wrong("a block closes behind one that is not written"):
        return leave_to_settle(m, p)
    if m.words[WRITE]:
        return leave_to_settle(m, p)
    m.words = put(m.words, WRITE, p.slot + 1)
    m.closing = m.open_slot()[1:]
    p.pc = "note"


@step("note")
def note_unwritten(m, p):
    """Before the switch, for whoever finds the next block open has to know. Until then the note means nothing."""
    if not m.wrong("the note comes after the switch"):
        m.unwritten = m.generation
    p.copy, p.after, p.pc = m.open_slot()[2], "write out", "empty"


@step("settle")
def read_generation_to_settle(m, p):
    """With the write lock, and without the append lock: the generation first."""
    p.generation, p.pc = m.generation, "settle note"
    if m.wrong("who settles reads the note before the generation"):
        p.copy = (m.unwritten,)


@step("settle note")
def read_note_to_settle(m, p):
    """Of the open block itself it says nothing: whoever noted that was killed before the switch. The repair takes the
    note back, and only then that block can be closed by another, with more records."""
    generation, note = p.generation, m.unwritten
    if m.wrong("who settles reads the note before the generation"):
        generation, note = m.generation, p.copy[0]
    p.generation, p.copy = -1, ()
    if note == generation - 1 >= 0:
        p.copy, p.pc = what_closes(m, note), "write out"
    else:
        settled(m, p)


@step("write out")
def write_out(m, p):
    """Also what is there already, of whoever was killed before the note was cleared: the same bytes again."""
    place, first, count, generation = p.copy
    m.write(place, (first, m.body(generation)[:count]))
    p.pc = "clear"


@step("write out")
def fail_to_write_out(m, p):
    """The block stays as it is, and the next who needs it written tries again. To who closed it nothing has happened:
    the record is in the next block, and published."""
    if not m.failures:
        return False
    m.failures -= 1
    p.after, p.copy, p.pc = "finish" if p.after == "write out" else "failed", (), "unlock"


@step("write out")
def fail_once_written_out(m, p):
    """All of it may be in the file all the same."""
    if not m.failures:
        return False
    write_out(m, p)
    fail_to_write_out(m, p)


@step("clear")
def clear_note(m, p):
    m.unwritten, p.copy = -1, ()
    settled(m, p)


def settled(m, p):
    if m.wrong("who settles does not take the write lock") and p.after != "write out":
        return again(m, p)
    p.after, p.pc = "finish" if p.after == "write out" else "again", "unlock"
