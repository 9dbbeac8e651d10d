"""The content of the journal: for the next process that opens it alone, and for a recovery after a power loss at this
moment.

Models: pyx/recover/abandoned_buffer.pyx.
"""

from world import Violation


def content(m):
    """Returns what page and segments hold, as the next process to open the journal alone would see it."""
    unwritten = ((m.open_slot(), m.body(m.generation)),)
    if m.immutable_slot():
        unwritten = ((m.immutable_slot(), m.body(m.unwritten), m.immutable), *unwritten)
    key = m.segment, m.files, m.starts, unwritten
    if key not in m.spec.cache:
        m.spec.cache[key] = walk(m, unwritten)
    return m.spec.cache[key]


def walk(m, unwritten):
    """Walks the blocks up to the first one that is only in a body, and then those in the bodies."""
    place, values, end = (0, 0), (), unwritten[0][0][0]
    while place != end:
        block = m.find(place)
        if block and block[0] == len(values):
            values, place = values + block[1], (place[0], place[1] + m.size(block[1]))
        elif not block and len(values) in m.files and place[0] != len(values):
            place = len(values), 0
        else:
            raise Violation(f"no block of the journal at {place}, after {values}: {block}")
        for name in m.files:
            if place[0] < name < len(values):
                raise Violation(f"{name} is looked for in file {name} and is in file {place[0]}")
    for (begin, first, word), body, *header in unwritten:
        if begin != place or first != len(values) or body[: len(word)] != word:
            raise Violation(f"the page says {first} {word} at {begin} after {values}, the body {body}")
        if header not in ([], [(first, word)]):
            raise Violation(f"the immutable block is {first} {word}, its header says {header}")
        place, values = (place[0], place[1] + m.size(word)), values + word
    for name in m.files:
        if end[0] < name < len(values):
            raise Violation(f"{name} is looked for in file {name} and is in the open block of file {end[0]}")
    for name, state in m.starts:
        if name <= end[0] and state != state_at(m, values[:name]):
            raise Violation(f"file {name} begins with state {state}, after {values[:name]}")
    if len(set(values)) != len(values):
        raise Violation(f"a record is there twice: {values}")
    return values


def state_at(m, values):
    """Returns the state after these records: the last value whose block carried state."""
    return next((value for value in reversed(values) if value in m.spec.carriers), 0)


def after_power_loss(m):
    """Yields every content that recovery may find: the valid prefix, then the body that begins exactly there, and then the
    other body if it begins where the first one ends."""
    certain, possible = m.entries
    loose = tuple(possible - certain)
    for chosen in range(1 << len(loose)):
        yield from scan(m, certain | {name for i, name in enumerate(loose) if chosen >> i & 1})


def scan(m, files):
    disk, todo = dict(m.disk), [((0, 0), (), files - {0})]
    while todo:
        place, values, unused = todo.pop()
        versions = disk.get(place, {None})
        blocks = [b for b in versions if b and b[0] == len(values)]
        todo += [((place[0], place[1] + m.size(b[1])), values + b[1], unused) for b in blocks]
        if len(blocks) == len(versions):
            continue  # the block is certainly there
        if len(values) in unused:
            todo.append(((len(values), 0), values, unused - {len(values)}))
            continue
        for name in unused:
            if name < min(len(values), m.durable):
                raise Violation(f"power loss: the file {name} of a killed roll is back, before the synced mark")
        yield values
        for parity in (0, 1):
            for longer in salvaged(m, values, parity):
                yield longer
                yield from salvaged(m, longer, 1 - parity)


def salvaged(m, values, parity):
    for first, word in m.images[parity]:
        if word and first == len(values) and all(v in cell for v, cell in zip(word, m.cells[parity])):
            yield values + word
