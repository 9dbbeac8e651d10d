"""A writer dies, and the open block is no longer what it published: the process that takes over gets no damage past the
readers, and no sequence is given out twice."""

from contextlib import suppress

import pytest

import jlog
from crash.tampering import flip, open_body_at
from processes.units import read_all, values_of

pytestmark = [pytest.mark.damage, pytest.mark.usefixtures("failpoints")]

BASE_BYTES = 8
FLUSHED, OPEN = 4, 5
LENGTH = (
    BASE_BYTES + 3,
    7,
)  # byte and bit within the body: the first record's tag says that it is of the long form
VALUE = BASE_BYTES + 8 + 2, 4  # a byte of the first record's value
TIME = 3, 0  # of the base time


@pytest.fixture
def others(spawn, path):
    """Two writers that live on. The third one has flushed some records, appended others, and died with the append lock."""
    victim, *others = [spawn() for _ in range(3)]
    for child, name in zip((victim, *others), ("victim", "a", "b"), strict=True):
        child.call("open_writer", name, str(path), {"precommit": 4 << 10})
    victim.call("append", "victim", FLUSHED)
    victim.call("flush", "victim")
    victim.call("append", "victim", OPEN)
    victim.call("arm", "append.encoded=kill@1")
    victim.dies("append", "victim", 1)
    return others


def values_until_damage(path):
    """Readable records, and whether there is damage after them."""
    found = []
    with jlog.Reader(path) as reader, suppress(jlog.CorruptJournal):
        found.extend(record.value for record in reader)
        return found, False
    return found, True


def values_of_victim(count):
    return [values_of("victim", unit)[0] for unit in range(count)]


def test_a_senseless_open_block_is_damage_for_each_writer(others, path, raised_by):
    """It is damage until all have closed, and it is not a failed sync."""
    byte, bit = LENGTH
    flip(path / "precommit", open_body_at(path) + byte, bit)
    for child, name in zip(others * 2, ("a", "b") * 2, strict=True):
        assert raised_by(child, "append", name).kind == "CorruptJournal"
        assert values_until_damage(path) == (values_of_victim(FLUSHED), True)
    for child in others:
        child.end()
    with jlog.Writer(path) as writer:
        assert writer.append(b"after") >= FLUSHED + OPEN
    assert [value for _, value in read_all(path)] == [*values_of_victim(FLUSHED), b"after"]
    assert jlog.Journal(path).verify().ok


@pytest.mark.parametrize(("byte", "bit"), [VALUE, TIME], ids=["value", "time"])
def test_records_damaged_before_a_takeover_are_never_returned(others, path, byte, bit):
    """Their checksum goes on as it was published, and into the segment with them."""
    flip(path / "precommit", open_body_at(path) + byte, bit)
    a, b = others
    a.call("append", "a")
    assert values_until_damage(path) == (values_of_victim(FLUSHED), True)
    a.call("flush", "a")
    with jlog.Reader(path) as reader:
        with pytest.raises(jlog.CorruptJournal):
            list(reader)
        assert reader.position == FLUSHED
        assert reader.skip_damage().records_lost == OPEN + 1
    b.call("append", "b", 3)
    assert not jlog.Journal(path).verify().ok
    for child in others:
        child.end()
    assert jlog.Journal(path).repair().ok
    found = read_all(path)
    assert [value for _, value in found] == [
        *values_of_victim(FLUSHED),
        *(values_of("b", unit)[0] for unit in range(3)),
    ]
    assert found[FLUSHED][0] == FLUSHED + OPEN + 1
