"""A reader of the living journal. It takes no lock and changes nothing.

Models: pyx/buffer/precommit.pyx, pyx/read/journal_end.pyx, pyx/read/open_block.pyx.
"""

from content import content
from world import Violation, step


@step("read generation")
def read_generation(m, r):
    r.generation, r.pc = m.generation, "read slot"


@step("read slot")
def read_slot(m, r):
    r.header, r.pc = m.slots[r.generation & 1][:2], "read word"


@step("read word")
def read_word(m, r):
    r.word, r.pc = m.slots[r.generation & 1][2], "read bytes"


@step("read bytes")
def read_bytes(m, r):
    r.bytes, r.pc = m.body(r.generation)[: len(r.word)], "read generation again"
    if r.immutable:
        r.pc = "read intent again"


@step("read generation again")
def read_generation_again(m, r):
    """Reads the generation again. A body is reused two generations later, and its slot perhaps one generation later."""
    moved, header, word, body = m.generation - r.generation, r.header, r.word, r.bytes
    used_anew = moved > (2 if m.wrong("reader takes a body that is used anew") else 1)
    used_anew = used_anew and not m.wrong("reader does not look at the generation again")
    r.header, r.word, r.bytes = (), (), ()
    if not used_anew and header[0] == r.place:
        if body != word:
            raise Violation("the reader takes a healthy body for damage")
        r.generation, r.pc = 0, "read generation"
        return deliver(m, r, header[1], body)
    if header[0] is None and (not moved or (moved == 1 and m.wrong("reader looks at a slot that is used anew"))):
        raise Violation("the reader takes a half-filled slot for damage")
    if moved or not m.spec.defers or m.wrong("reader takes a block that is not open for written"):
        r.generation, r.pc = 0, "read segment"  # this block is older, or has just been written
    else:
        r.pc = "read intent"  # this block is older: it may be immutable


@step("read intent")
def read_intent(m, r):
    """Reads the intent after the generation: if another block is marked later, the blocks before that one are written."""
    r.immutable = m.unwritten == r.generation - 1 >= 0
    r.generation, r.pc = (r.generation - 1, "read slot") if r.immutable else (0, "read segment")


@step("read intent again")
def read_intent_again(m, r):
    """Reads the intent again. As long as the block is marked, neither its body nor its slot is reused. The generation alone
    would only cover the body."""
    immutable, header, word, body = m.unwritten == r.generation, r.header, r.word, r.bytes
    if m.wrong("reader looks at the generation of an immutable block only"):
        immutable = m.generation - r.generation <= 1
    r.generation, r.immutable, r.header, r.word, r.bytes, r.pc = 0, False, (), (), (), "read generation"
    if not immutable:
        return
    if header[0] is None:
        raise Violation("the reader takes a half-filled slot for damage")
    if header[0] != r.place:
        r.pc = "read segment"
    elif body != word:
        raise Violation("the reader takes a healthy body for damage")
    else:
        deliver(m, r, header[1], body)
        go_on(m, r, word)


@step("read segment")
def read_segment(m, r):
    block = m.find(r.place)
    r.pc = "read generation"
    if block:
        deliver(m, r, *block)
        go_on(m, r, block[1])
    elif r.first in m.files and r.place[0] != r.first:
        r.place = r.first, 0
    else:
        raise Violation(f"the block at {r.place} is nowhere")


def go_on(m, r, values):
    """Goes on to the next block, which begins after this complete one."""
    r.place = r.place[0], r.place[1] + m.size(values)
    r.first = r.seen


def deliver(m, r, first, values):
    published = content(m)
    if first != r.first or values != published[first : first + len(values)]:
        raise Violation(f"the reader gets {values} as {first}; published is {published}")
    r.seen = max(r.seen, first + len(values))
