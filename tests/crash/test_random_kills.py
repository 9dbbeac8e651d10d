"""Writers of all sorts are killed at any instruction and started again, again and again, while others go on."""

import random

import jlog
from crash.copies import WAYS, check_killed
from processes.units import check_units, values_of

SEED = 7
END = values_of("end", 0)[0]
WORK = [
    ("append", 1 << 30, 100),
    ("extend", 1 << 30, 5, 80),
    ("work", 1 << 30),
    ("extend", 1 << 30, 2, 60, True),
]
PRECOMMITS = (4 << 10, 0, 128 << 10)
# Each that is given changes it for all.
COMPRESSIONS = (None, "lz4", None, None, "none")
SYNCS = (None, None, None, "append", None, "none", "interval")


def start(spawn, path, number):
    child, call = spawn(), WORK[number % len(WORK)]
    options = {
        "precommit": PRECOMMITS[number % len(PRECOMMITS)],
        "segment_bytes": 16 << 10,
        "compression": COMPRESSIONS[number % len(COMPRESSIONS)],
        "sync": SYNCS[number % len(SYNCS)],
        "sync_interval": 0.01,
    }
    child.call("open_writer", f"w{number}", str(path), options)
    child.start(call[0], f"w{number}", *call[1:])
    return child


def test_many_kills_lose_no_acknowledged_record_and_repeat_none(spawn, tmp_path):
    path, chance = tmp_path / "j", random.Random(SEED)
    jlog.Journal.create(path, precommit=4 << 10)
    reader, dead = spawn(), []
    reader.start("follow", str(path), END.decode())
    alive = [start(spawn, path, number) for number in range(4)]
    for number in range(4, 26):
        victim = alive.pop(chance.randrange(len(alive)))
        for _ in range(chance.randrange(1, 60)):
            victim.wait_for("unit")
        victim.kill()
        dead.append(victim)
        alive.append(start(spawn, path, number))
    for child in alive:
        child.kill()
    units = [unit for child in dead + alive for unit in child.acknowledged]
    assert len(units) > 500
    check_units(path, units)
    with jlog.Writer(path) as writer:
        writer.append(END)
    reader.result()
    assert reader.records == check_units(path, units)
    assert not jlog.Journal(path).gaps()


def test_recovery_after_each_kill_of_all_writers_loses_nothing(spawn, tmp_path):
    path, chance, units = tmp_path / "j", random.Random(SEED), []
    for number in range(8):
        children = [start(spawn, path, 2 * number + i) for i in range(2)]
        for _ in range(chance.randrange(1, 60)):
            children[0].wait_for("unit")
        for child in children:
            child.kill()
            units += child.acknowledged
        check_killed(path, units, [WAYS[number % len(WAYS)]])
    assert not jlog.Journal(path).gaps()


def test_a_killed_subscriber_goes_on_at_its_last_commit(spawn, tmp_path):
    """Each delivered record comes again at most since the commit, and none is left out."""
    path, chance = tmp_path / "j", random.Random(SEED)
    jlog.Journal.create(path, precommit=4 << 10, segment_bytes=16 << 10, retention=jlog.Retention(delete_read=False))
    writer, seen, committed = start(spawn, path, 0), [], 0
    for number in range(1, 8):
        reader = spawn()
        assert reader.call("subscribe", "billing", str(path)) == committed
        for _ in range(chance.randrange(1, 6)):
            writer.wait_for("unit")
            seen_now = reader.call("read", "billing", chance.randrange(1, 20))
            seen += seen_now
            if chance.random() < 0.5 and seen_now:
                reader.call("commit", "billing")
                committed = seen_now[-1] + 1
        reader.kill()
        if number % 2:
            writer.kill()
            writer = start(spawn, path, number * 4)
    writer.kill()
    assert sorted(set(seen)) == list(range(max(seen) + 1))
