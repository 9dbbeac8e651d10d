"""Small programs in which every promise must hold, and known mistakes that the check must find."""

from protocol import Protocol


def a(*values):
    return tuple(("append", value) for value in values)


def large(*values):
    return tuple(("large", value) for value in values)


def d(*values):
    return (("direct", *values),)


def own(*values):
    return (("own file", *values),)


def s(*values):
    return (("state", *values),)


def own_s(*values):
    return (("own file, state", *values),)


FLUSH, ROLL, SYNC = (("flush",),), (("roll",),), (("sync",),)

SCENARIOS = [
    Protocol("three writers, one killed", (a(11, 12), a(21, 22), a(31, 32)), quick=True),
    Protocol(
        "the taker is killed too, two slots are reused",
        (a(11, 12), a(21), a(31), a(41), a(51)),
        kills=2,
        newcomers=2,
    ),
    Protocol("a reader follows appends", (a(11, 12, 13), a(21, 22), a(31)), newcomers=1, reader=True),
    Protocol("flush and direct", (a(11) + FLUSH + a(12), d(21, 22) + a(23), a(31)), newcomers=1, reader=True),
    Protocol("two threads of one process", (a(11), a(21), a(31, 32), a(41)), newcomers=1, threads=((2, 1),)),
    Protocol(
        "two threads of one process, a reader",
        (a(11), a(21, 22), a(31)),
        threads=((2, 1),),
        reader=True,
    ),
    Protocol("rolls", (a(11) + ROLL + a(12), d(21) + ROLL, a(31)), newcomers=1, reader=True),
    Protocol(
        "rolls: the slot is reused and rolls again",
        (a(11) + ROLL, a(21), a(31) + ROLL, a(41)),
        kills=2,
        newcomers=2,
    ),
    Protocol(
        "rolls: two threads of one process",
        (a(11) + ROLL, a(21) + ROLL, a(31)),
        threads=((1, 0),),
        quick=True,
    ),
    Protocol("rolls that fail", (a(11) + ROLL, a(21) + ROLL, a(31)), failures=1, newcomers=1, reader=True),
    Protocol("own files", (a(11) + own(12, 13), own(21) + a(22), a(31)), newcomers=1, reader=True),
    Protocol("own files that fail", (a(11) + own(12), a(21) + own(22)), failures=2, reader=True),
    Protocol("own files that fail, a slot is reused", (a(11) + own(12), a(21) + own(22), a(31)), 1, 1, 1),
    Protocol("state: blocks and rolls", (a(11) + ROLL, s(21) + s(22), a(31) + ROLL), newcomers=1, quick=True),
    Protocol("state: in a file of its own", (a(11) + own_s(12), s(21) + ROLL, a(31) + own_s(32))),
    Protocol(
        "state: rolls and a file of its own",
        (a(11) + own_s(12), s(21) + ROLL, a(31)),
        newcomers=1,
        quick=True,
    ),
    Protocol("state: writes that fail", (a(11) + ROLL, s(21), s(31), a(41) + ROLL), failures=1, newcomers=1),
    Protocol("lz4: helpers", (a(11) + FLUSH + a(12), a(21, 22), a(31) + FLUSH), kills=2, lz4=True),
    Protocol("lz4: a reader, direct", (a(11, 12) + FLUSH, d(21, 22), a(31)), newcomers=1, lz4=True, reader=True),
    Protocol("lz4: rolls, state", (a(11) + ROLL, s(21) + a(22), own(31)), newcomers=1, lz4=True, quick=True),
    Protocol("sync and append locks", (a(11) + SYNC, a(21) + SYNC, a(31), SYNC), kills=2, newcomers=1),
    Protocol("writes that fail", (d(11), a(21) + FLUSH + a(22), a(31) + d(32), a(41)), failures=2, newcomers=1),
    Protocol("a reader, writes that fail", (d(11), a(21) + FLUSH, a(31)), failures=2, reader=True),
    Protocol(
        "power loss: writes that fail",
        (d(11) + SYNC, a(21) + FLUSH, a(31) + d(32)),
        kills=2,
        failures=2,
        power=True,
    ),
    Protocol(
        "power loss: direct",
        (a(11) + d(12) + SYNC, d(21) + a(22), a(31) + SYNC),
        kills=2,
        newcomers=1,
        power=True,
    ),
    Protocol(
        "power loss: flush, rolls",
        (a(11) + FLUSH + a(12), d(21) + ROLL + a(22), SYNC + a(31) + SYNC),
        kills=2,
        newcomers=1,
        power=True,
    ),
    Protocol(
        "power loss: rolls that fail",
        (a(11) + ROLL, a(21) + SYNC, a(31)),
        kills=2,
        failures=1,
        power=True,
    ),
    Protocol(
        "power loss: own files",
        (a(11) + own(12), own(21) + a(22), a(31) + SYNC),
        kills=2,
        failures=1,
        newcomers=1,
        power=True,
    ),
    Protocol("power loss: lz4", (a(11, 12) + SYNC, d(21), a(31) + FLUSH), lz4=True, power=True),
    Protocol("immutable: three writers", (large(11, 12), large(21, 22), large(31) + a(32)), kills=2, defers=True),
    Protocol(
        "immutable: the taker is killed too, two slots are reused",
        (large(11, 12), large(21), large(31), large(41)),
        kills=2,
        newcomers=2,
        defers=True,
    ),
    Protocol("immutable: a reader", (large(11, 12), large(21)), reader=True, defers=True, quick=True),
    Protocol(
        "immutable: a reader, a slot is reused",
        (large(11, 12), large(21, 22), a(31)),
        newcomers=1,
        reader=True,
        defers=True,
    ),
    Protocol(
        "immutable: flush, direct, state",
        (large(11, 12) + FLUSH, d(21) + a(22), s(31)),
        newcomers=1,
        defers=True,
        quick=True,
    ),
    Protocol(
        "immutable: rolls",
        (large(11, 12) + ROLL, large(21) + own(22), a(31)),
        newcomers=1,
        defers=True,
        quick=True,
    ),
    Protocol(
        "immutable: two threads of one process",
        (large(11, 12) + FLUSH, large(21), large(31) + FLUSH),
        threads=((1, 0),),
        defers=True,
    ),
    Protocol(
        "immutable: writes that fail",
        (large(11, 12) + FLUSH, large(21, 22) + FLUSH),
        failures=2,
        defers=True,
    ),
    Protocol(
        "immutable: writes that fail, a flush beside them",
        (large(11, 12) + FLUSH, large(21, 22), FLUSH),
        failures=1,
        defers=True,
    ),
    Protocol(
        "immutable: writes that fail, a reader",
        (large(11, 12) + FLUSH, large(21)),
        failures=2,
        reader=True,
        defers=True,
    ),
    Protocol("immutable: rolls that fail", (large(11, 12) + ROLL, large(21) + own(22)), failures=1, defers=True),
    Protocol("immutable: syncs", (large(11, 12) + SYNC, large(21, 22), SYNC), kills=0, defers=True),
    Protocol(
        "immutable: power loss, direct, writes that fail",
        (large(11, 12) + SYNC, d(21) + large(22)),
        failures=1,
        power=True,
        defers=True,
        quick=True,
    ),
    Protocol(
        "immutable: power loss, syncs",
        (large(11, 12) + SYNC, large(21, 22), SYNC),
        kills=0,
        power=True,
        defers=True,
    ),
    Protocol(
        "immutable: power loss, syncs, a slot is reused",
        (large(11, 12) + SYNC, large(21) + SYNC, large(31)),
        kills=2,
        newcomers=1,
        power=True,
        defers=True,
    ),
    Protocol(
        "immutable: power loss, rolls that fail",
        (large(11, 12) + SYNC, large(21) + ROLL + a(22), a(31)),
        failures=1,
        newcomers=1,
        power=True,
        defers=True,
    ),
]


def wrong(mistake, *programs, **options):
    return Protocol("", programs, wrong=mistake, **{"quick": True, **options})


MISTAKES = [
    # Writer slots and lock words
    wrong("takeover without holding the byte", a(11), a(21), a(31), newcomers=1),
    wrong("takeover from a stopped owner", a(11), a(21), kills=0),
    wrong("the mutex surrounds each fcntl call only", a(11), a(21), a(31), a(41), newcomers=1, threads=((2, 1),)),
    wrong("opening alone wants both slots intact", a(11) + FLUSH),
    wrong("newcomer ignores the word that names its slot", a(11), a(21), a(31), newcomers=1),
    # Direct blocks
    wrong("takeover does not publish a whole direct block", d(11), a(21) + ROLL + a(22), reader=True),
    wrong("takeover does not publish a whole direct block", d(11), a(21), power=True),
    wrong("direct is a flag that the rotation clears first", d(11), a(21) + FLUSH + ROLL + a(22), power=True),
    wrong(
        "takeover publishes a direct block though the word is not empty",
        *(d(11), a(21) + FLUSH, a(31), a(41)),
        failures=2,
    ),
    wrong("a direct write that fails does not look at its place", d(11), a(21), a(31), failures=1),
    wrong("a direct write that fails does not look at its place", d(11), a(21), kills=0, failures=1, power=True),
    wrong("one rotation for the open block and a direct one", a(11) + d(12), FLUSH + ROLL + a(21), power=True),
    # Segment files
    wrong("takeover leaves the file of a killed roll", a(11) + ROLL, a(21)),
    wrong("takeover does not sync the directory after that", a(11) + own(12), a(21), kills=1, power=True),
    wrong(
        "takeover that finds no file does not sync the directory",
        a(11) + own(12),
        a(21),
        a(31),
        kills=2,
        power=True,
    ),
    wrong(
        "takeover that finds no file does not sync the directory",
        a(11) + own(12),
        a(21),
        failures=1,
        power=True,
    ),
    wrong("a roll that fails leaves its file", a(11) + ROLL, a(21) + ROLL, kills=0, failures=1),
    wrong(
        "a roll that fails does not sync the directory",
        a(11) + own(12),
        a(21),
        kills=0,
        failures=1,
        power=True,
    ),
    wrong("newcomer leaves what its slot's last owner prepared", a(11) + ROLL, a(21) + ROLL, newcomers=1),
    wrong("newcomer removes what any slot has prepared", a(11), a(21) + ROLL, a(31), newcomers=1),
    wrong("sync does not sync the directory of a new segment", a(11) + ROLL + a(12) + SYNC, power=True),
    # State
    wrong("roller does not look at the intent of state again", a(11) + ROLL, s(21), kills=0),
    wrong("roller reads the state before the generation", a(11) + ROLL, s(21), kills=0),
    wrong("the state is marked after the rotation", a(11) + ROLL, s(21)),
    wrong("roller looks at the intent only, though the generation has not moved", d(11) + ROLL, s(21), failures=1),
    wrong("roller ignores the intent of the open generation", a(11) + ROLL, s(21) + s(22)),
    # Sync
    wrong("sync lock is taken while append is held", a(11) + SYNC, a(21) + SYNC, kills=0),
    wrong("holder of the sync lock just stores the durable end", a(11) + SYNC, a(21) + SYNC, kills=0),
    wrong(
        "sync promises the end that it finds after the fdatasync",
        a(11) + SYNC,
        a(21) + FLUSH,
        kills=0,
        power=True,
    ),
    wrong("sync does not look at the generation again", SYNC, a(21) + FLUSH + a(22) + FLUSH, kills=0),
    # Rotation, and readers
    wrong("rotation before the block is written", a(11) + FLUSH, kills=0, reader=True),
    wrong(
        "reader does not look at the generation again",
        a(11) + FLUSH + a(12) + FLUSH + a(13),
        kills=0,
        reader=True,
    ),
    wrong("publish before the bytes", a(11), reader=True),
    wrong(
        "header is filled before the word is emptied",
        a(11) + FLUSH + a(12) + FLUSH + a(13),
        kills=0,
        power=True,
    ),
    # Compression
    wrong("helper does not look at the generation again", a(11) + FLUSH, a(21) + FLUSH, kills=0, lz4=True),
    wrong("takeover reopens a closed block", a(11) + FLUSH, FLUSH, a(31), lz4=True),
    wrong("closed is a flag that the rotation clears first", a(11) + FLUSH, FLUSH, a(31), lz4=True),
    # Writing back after the rotation
    wrong("a block closes after one that is not written", large(11, 12, 13), kills=0, failures=1, defers=True),
    wrong("a direct block after one that is not written", large(11, 12), d(21), kills=0, defers=True),
    wrong("a roll after a block that is not written", large(11, 12), ROLL + a(21), kills=0, defers=True),
    wrong("the intent comes after the rotation", large(11, 12), defers=True),
    wrong("a drain does not take the write lock", large(11, 12, 13), large(21), kills=0, defers=True),
    wrong(
        "a drain reads the intent before the generation",
        *(large(11, 12, 13), FLUSH, a(31) + FLUSH),
        defers=True,
    ),
    wrong(
        "takeover leaves the intent of a block that is open still",
        *(large(11, 12), a(21) + FLUSH + a(22) + FLUSH),
        defers=True,
    ),
    wrong(
        "takeover leaves the intent of a block that is open still",
        *(large(11, 12), a(21) + FLUSH, FLUSH + large(31)),
        defers=True,
    ),
    wrong(
        "newcomer ignores the word that names its slot",
        *(large(11, 12), a(21), large(31)),
        newcomers=1,
        defers=True,
    ),
    wrong("flush is done though its block is immutable", a(11) + FLUSH, large(21, 22, 23), kills=0, defers=True),
    wrong("sync promises the open block's place", SYNC, large(21, 22), kills=0, power=True, defers=True),
    wrong("sync does not look at the intent again", SYNC, large(21, 22, 23), kills=0, power=True, defers=True),
    wrong(
        "reader takes a block that is not open for written",
        large(11, 12),
        kills=0,
        reader=True,
        defers=True,
    ),
    wrong("reader takes a body that is used anew", large(11, 12, 13), kills=0, reader=True, defers=True),
    wrong(
        "reader looks at the generation of an immutable block only",
        large(11, 12) + FLUSH,
        kills=0,
        reader=True,
        defers=True,
    ),
    wrong("reader looks at a slot that is used anew", large(11, 12) + FLUSH, kills=0, reader=True, defers=True),
]
