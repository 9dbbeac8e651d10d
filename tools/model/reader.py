"""A reader of the living journal. It takes no lock and changes nothing."""

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
    r.bytes, r.pc = m.body[: len(r.word)], "read generation again"


@step("read generation again")
def read_generation_again(m, r):
    moved = m.generation != r.generation and not m.wrong("reader does not look at the generation again")
    header, word, body = r.header, r.word, r.bytes
    r.generation, r.header, r.word, r.bytes, r.pc = 0, (), (), (), "read generation"
    if moved or header[0] != r.place:
        if not moved and header[0] is None:
            raise Violation("the reader takes a half-filled slot for damage")
        r.pc = "read segment"  # our block is older than the open one, or has been switched away from just now
    elif body != word:
        raise Violation("the reader takes a healthy body for damage")
    else:
        deliver(m, r, header[1], body)


@step("read segment")
def read_segment(m, r):
    block = m.find(r.place)
    r.pc = "read generation"
    if block:
        deliver(m, r, *block)
        r.place = r.place[0], r.place[1] + m.size(block[1])
        r.first = r.seen
    elif r.first in m.files and r.place[0] != r.first:
        r.place = r.first, 0
    else:
        raise Violation(f"the block at {r.place} is nowhere")


def deliver(m, r, first, values):
    published = content(m)
    if first != r.first or values != published[first : first + len(values)]:
        raise Violation(f"the reader gets {values} as {first}; published is {published}")
    r.seen = max(r.seen, first + len(values))
