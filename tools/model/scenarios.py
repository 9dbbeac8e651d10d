"""Small programs in which every promise must hold, and known mistakes, each of which must be caught."""

from protocol import Protocol


def a(*values):
    return tuple(("append", value) for value in values)


def d(*values):
    return (("direct", *values),)


def own(*values):
    return (("own file", *values),)


def s(*values):
    return (("state", *values),)


FLUSH, ROLL, SYNC = (("flush",),), (("roll",),), (("sync",),)

SCENARIOS = [
    Protocol("three writers, one killed", (a(11, 12), a(21, 22), a(31, 32))),
    Protocol("the taker is killed too, two slots are reused", (a(11, 12), a(21), a(31), a(41), a(51)), kills=2, newcomers=2),
    Protocol("a reader follows appends", (a(11, 12, 13), a(21, 22), a(31)), newcomers=1, reader=True),
    Protocol("flush and direct", (a(11) + FLUSH + a(12), d(21, 22) + a(23), a(31)), newcomers=1, reader=True),
    Protocol("two threads of one process", (a(11), a(21, 22), a(31, 32), a(41)), newcomers=1, threads=((2, 1),), reader=True),
    Protocol("rolls", (a(11) + ROLL + a(12), d(21) + ROLL, a(31) + ROLL), newcomers=1, reader=True),
    Protocol("lz4: helpers", (a(11) + FLUSH + a(12), a(21, 22), a(31) + FLUSH), kills=2, lz4=True),
    Protocol("lz4: a reader, direct", (a(11, 12) + FLUSH, d(21, 22) + a(23), a(31)), newcomers=1, lz4=True, reader=True),
    Protocol("sync and append locks", (a(11) + SYNC, a(21) + SYNC, a(31), SYNC), kills=2, newcomers=1),
    Protocol("writes that fail", (d(11), a(21) + FLUSH + a(22), a(31) + d(32), a(41)), failures=2, newcomers=1),
    Protocol("a reader, writes that fail", (d(11), a(21) + FLUSH, a(31)), failures=2, reader=True),
    Protocol("power loss: writes that fail", (d(11) + SYNC, a(21) + FLUSH, a(31) + d(32)), kills=2, failures=2, power=True),
    Protocol("power loss: direct", (a(11) + d(12) + SYNC, d(21) + a(22), a(31) + SYNC), kills=2, newcomers=1, power=True),
    Protocol("power loss: flush, rolls", (a(11) + FLUSH + a(12), d(21) + ROLL + a(22), SYNC + a(31) + SYNC), kills=2, newcomers=1, power=True),
    Protocol("power loss: lz4", (a(11, 12) + SYNC, d(21) + a(22), a(31) + FLUSH), kills=2, lz4=True, power=True),
]

MISTAKES = [
    Protocol("", (a(11), a(21), a(31)), newcomers=1, wrong="takeover without holding the byte"),
    Protocol("", (a(11), a(21)), kills=0, wrong="takeover from a stopped owner"),
    Protocol("", (a(11), a(21), a(31), a(41)), newcomers=1, threads=((2, 1),), wrong="the mutex surrounds each fcntl call only"),
    Protocol("", (a(11) + FLUSH,), wrong="opening alone wants both slots intact"),
    Protocol("", (a(11), a(21), a(31)), newcomers=1, wrong="newcomer ignores the word that names its slot"),
    Protocol("", (d(11), a(21) + ROLL + a(22)), reader=True, wrong="takeover does not publish a whole direct block"),
    Protocol("", (d(11), a(21)), power=True, wrong="takeover does not publish a whole direct block"),
    Protocol("", (d(11), a(21) + FLUSH + ROLL + a(22)), power=True, wrong="direct is a flag that the switch clears first"),
    Protocol("", (d(11), a(21) + FLUSH, a(31), a(41)), failures=2, wrong="takeover publishes a direct block though the word is not empty"),
    Protocol("", (d(11), a(21), a(31)), failures=1, wrong="a direct write that fails does not look at its place"),
    Protocol("", (d(11), a(21)), kills=0, failures=1, power=True, wrong="a direct write that fails does not look at its place"),
    Protocol("", (a(11) + ROLL, a(21)), wrong="takeover leaves the file of a killed roll"),
    Protocol("", (a(11) + ROLL, SYNC, a(31) + SYNC), power=True, wrong="takeover does not sync the directory after that"),
    Protocol("", (a(11) + ROLL + a(12) + SYNC,), power=True, wrong="sync does not sync the directory of a new segment"),
    Protocol("", (a(11) + SYNC, a(21) + SYNC), kills=0, wrong="sync word is taken while append is held"),
    Protocol("", (a(11) + SYNC, a(21) + SYNC), kills=0, wrong="holder of the sync word just stores the durable end"),
    Protocol("", (a(11) + SYNC, a(21) + FLUSH), kills=0, power=True, wrong="sync promises the end that it finds after the fdatasync"),
    Protocol("", (SYNC, a(21) + FLUSH + a(22) + FLUSH), kills=0, wrong="sync does not look at the generation again"),
    Protocol("", (a(11) + d(12), FLUSH + ROLL + a(21)), power=True, wrong="one switch for the open block and a direct one"),
    Protocol("", (a(11) + FLUSH, ), kills=0, reader=True, wrong="switch before the block is written"),
    Protocol("", (a(11) + FLUSH + a(12) + FLUSH + a(13),), kills=0, reader=True, wrong="reader does not look at the generation again"),
    Protocol("", (a(11),), reader=True, wrong="publish before the bytes"),
    Protocol("", (a(11) + FLUSH, a(21) + FLUSH), kills=0, lz4=True, wrong="helper does not look at the generation again"),
    Protocol("", (a(11) + FLUSH, FLUSH, a(31)), lz4=True, wrong="takeover reopens a closed block"),
    Protocol("", (a(11) + FLUSH, FLUSH, a(31)), lz4=True, wrong="closed is a flag that the switch clears first"),
    Protocol("", (a(11) + FLUSH + a(12) + FLUSH + a(13),), kills=0, power=True, wrong="header is filled before the word is emptied"),
]
