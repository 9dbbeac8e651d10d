"""Writer slots, the lock words, and the work that a takeover of the append lock from a dead process does first.

Models: pyx/process/locks.pyx, pyx/process/takeover.pyx.
"""

from content import content
from world import APPEND, SYNC, WRITE, Violation, begin, put, step


@step("start")
def take_slot(m, p):
    if None not in m.locks:
        return False
    p.slot = m.locks.index(None)
    m.locks = put(m.locks, p.slot, m.spec.process(p.pid))
    p.pc = "take over"


@step("take over")
def take_over_words(m, p):
    """Takes over every word that names the new slot. No other process ever could, since this one now holds the slot's byte.
    The files that the slot's last owner had prepared are removed. The files of other slots belong to living processes."""
    mine = [s for s in m.spares if s[0][0] != p.slot]
    if m.wrong("newcomer removes what any slot has prepared"):
        mine = []
    if not m.wrong("newcomer leaves what its slot's last owner prepared"):
        m.spares = tuple(mine)
    if p.slot + 1 not in m.words or m.wrong("newcomer ignores the word that names its slot"):
        return begin(m, p)
    p.want = m.words.index(p.slot + 1)
    p.then, p.after = "unlock", "take over"
    p.pc = "repair" if p.want == APPEND else "unlock"


# --- The lock and the takeover ---


@step("lock")
def lock(m, p):
    if m.words[p.want]:
        return False
    m.words = put(m.words, p.want, p.slot + 1)
    held(m, p)


@step("lock")
def suspect(m, p):
    """After 1 ms the process looks for the owner of the word. It never asks about its own slot."""
    if m.words[p.want] in (0, p.slot + 1):
        return False
    p.suspect, p.pc = m.words[p.want], "ask"


@step("ask")
def take_byte(m, p):
    """1. Takes the byte of the owner's slot. That proves the owner's death, and no process can reuse the slot meanwhile. OFD
    locks do not exclude threads of one process. So a separate mutex does, from here to drop_byte."""
    us, holder = m.spec.process(p.pid), m.locks[p.suspect - 1]
    if holder not in (None, us) and not m.wrong("takeover from a stopped owner"):
        return False
    if holder == us and not m.wrong("the mutex surrounds each fcntl call only"):
        return False
    if not m.wrong("takeover without holding the byte"):
        m.locks = put(m.locks, p.suspect - 1, us)
    p.pc = "cas"


@step("ask")
def ask_again(m, p):
    if m.words[p.want] == p.suspect:
        return False
    p.suspect, p.pc = 0, "lock"


@step("cas")
def take_word(m, p):
    """2. Takes the word. Now it names this process. If this process is killed, the takeover passes to the next one."""
    won = m.words[p.want] == p.suspect
    if won:
        m.words = put(m.words, p.want, p.slot + 1)
    p.pc = "drop won" if won else "drop lost"


@step("drop won")
@step("drop lost")
def drop_byte(m, p):
    if m.locks[p.suspect - 1] == m.spec.process(p.pid):
        m.locks = put(m.locks, p.suspect - 1, None)
    won, p.suspect = p.pc == "drop won", 0
    if not won:
        p.pc = "lock"
    elif p.want == APPEND:
        p.pc = "repair"
    else:
        held(m, p)  # a dead sync has promised nothing, and a block is written again: no repair is needed


@step("repair")
def tidy(m, p):
    """3. Removes the file of a killed roll, whose name would be in the way. A process killed before its rotation has marked a
    block as unwritten which is still open and takes more records. That intent is removed too."""
    if m.unwritten == m.generation and not m.wrong("takeover leaves the intent of a block that is open still"):
        m.unwritten = -1
    if m.wrong("takeover reopens a closed block"):
        m.closed = -1  # a slow helper still has a copy of it from before
    kept = {name for name in m.files if name <= m.open_slot()[0][0]}
    p.pc = "repair entries" if m.spec.power else "complete"
    if kept == set(m.files) and m.wrong("takeover that finds no file does not sync the directory"):
        p.pc = "complete"
    if kept != set(m.files) and not m.wrong("takeover leaves the file of a killed roll"):
        m.set_files(kept)


@step("repair entries")
def sync_tidied_directory(m, p):
    """Syncs the directory even if there was no such file: the dead process may have removed it, and not synced that yet."""
    if not m.wrong("takeover does not sync the directory after that"):
        m.sync_directory()
    p.pc = "complete"


@step("complete")
def complete(m, p):
    """Publishes a whole direct block. It may be on the disk already, so its numbers cannot be given out again, and the
    missing rotation publishes it. A torn block never becomes whole, and is written over. If the word has records, the place
    holds at most a write back that failed."""
    place, first, word = m.open_slot()
    block = m.find(place)
    intended = m.direct == m.generation and not m.wrong("takeover does not publish a whole direct block")
    if not intended or (word and not m.wrong("takeover publishes a direct block though the word is not empty")):
        held(m, p)
    elif block and block[0] == first:
        p.copy, p.pc = block[1], "empty"
    else:
        held(m, p)


def held(m, p):
    """Goes on with the lock held. This is not a step, since it reads only data that the lock protects."""
    if p.want == SYNC:
        p.pc = "sync generation"
        if m.wrong("sync lock is taken while append is held"):
            m.words = put(m.words, APPEND, 0)
    elif p.want == WRITE:
        p.pc = "drain"
    elif p.copy and (m.generation == p.generation or m.wrong("helper does not look at the generation again")):
        p.pc = "write"
    else:
        p.pc, p.copy = p.then, ()


@step("unlock")
def unlock(m, p):
    m.words = put(m.words, p.want, 0)
    p.pc = p.after
    if p.pc == "finish":
        finish(m, p)
    elif p.pc == "again":
        again(m, p)
    elif p.pc == "write back":
        p.want, p.copy = WRITE, what_closes(m, m.generation - 1)  # no other process changes that now


def again(m, p):
    """Begins the call again after the drain, from the append lock on."""
    program = m.spec.programs[p.pid]
    p.want, p.pc, p.generation = APPEND, "lock", -1
    p.after = "sync" if program[p.op][0] == "sync" else "finish"


def what_closes(m, generation):
    """Returns what is to be written, from slot and header, and the generation of the body."""
    first, values = m.immutable
    return m.slots[generation & 1][0], first, len(values), generation


def finish(m, p):
    """Ends the call: from here on its records are acknowledged."""
    program, kept = m.spec.programs[p.pid][: p.op + 1], content(m)
    if program[-1][0] == "flush":
        kept = kept[: m.written_end()]
    elif program[-1][0] == "sync":
        kept = kept[: m.durable]
    for value in (value for call in program for value in call[1:]):
        if kept.count(value) != 1:
            raise Violation(f"{program[-1]} has returned and {value} is {kept.count(value)} times in {kept}")
    p.op += 1
    begin(m, p)
