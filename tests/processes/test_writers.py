"""Any number of processes and threads write to one journal at once, in any mix of options."""

import os
import pickle

import pytest

import jlog
from processes.units import check_units, part_of, read_all, values_of

PRECOMMITS = {"0": [0], "4 KiB": [4 << 10], "128 KiB": [128 << 10], "mixed": [128 << 10, 0, 4 << 10]}
END = values_of("end", 0)[0]


def write_together(spawn, path, processes, precommits, call):
    """Each process makes its calls while the others do. Returns the children."""
    children = [spawn() for _ in range(processes)]
    for i, child in enumerate(children):
        options = {"precommit": precommits[i % len(precommits)], "segment_bytes": 64 << 10}
        if len(precommits) > 1:
            options["compression"] = "lz4"
        child.call("open_writer", f"w{i}", str(path), options)
    for i, child in enumerate(children):
        child.start(call[0], f"w{i}", *call[1:])
    return children


def append_the_end(path):
    with jlog.Writer(path) as writer:
        writer.append(END)


@pytest.mark.parametrize("processes", [2, 8])
@pytest.mark.parametrize("precommits", PRECOMMITS.values(), ids=PRECOMMITS)
@pytest.mark.parametrize("call", [("append", 150, 100), ("extend", 60, 5, 100)], ids=["append", "extend"])
def test_every_acknowledged_record_is_there_once_and_in_order(spawn, tmp_path, processes, precommits, call):
    children = write_together(spawn, tmp_path / "j", processes, precommits, call)
    for child in children:
        child.result()
    acknowledged = [unit for child in children for unit in child.acknowledged]
    records = check_units(tmp_path / "j", acknowledged)
    assert len(records) == sum(unit.parts for unit in acknowledged)


@pytest.mark.parametrize("precommits", PRECOMMITS.values(), ids=PRECOMMITS)
def test_readers_see_the_same_order_wherever_they_begin(spawn, tmp_path, precommits):
    path = tmp_path / "j"
    jlog.Journal.create(path)
    early, late = spawn(), spawn()
    early.start("follow", str(path), END.decode())
    early.wait_for("following")
    children = write_together(spawn, path, 3, precommits, ("append", 400, 100))
    children[0].wait_for("unit")
    late.start("follow", str(path), END.decode())
    for child in children:
        child.result()
    append_the_end(path)
    early.result(), late.result()
    records = read_all(path)
    assert early.records == records
    assert late.records == records
    assert len(records) == 1201


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_calls_of_all_sorts_mix(spawn, tmp_path, compression):
    path = tmp_path / "j"
    children = [spawn() for _ in range(3)]
    options = {"precommit": 4 << 10, "segment_bytes": 8 << 10, "compression": compression}
    for i, child in enumerate(children):
        child.call("open_writer", f"w{i}", str(path), options)
        child.call("open_writer", "direct", str(path), {"precommit": 0})
    for i, child in enumerate(children):
        child.start("work", f"w{i}", 40, "direct")
    for child in children:
        child.result()
    check_units(path, [unit for child in children for unit in child.acknowledged])
    assert len(jlog.Journal(path).segments()) > 10


def test_a_value_larger_than_a_segment_goes_between_others(spawn, tmp_path):
    """It is larger than the buffer, too."""
    children = [spawn() for _ in range(3)]
    for i, child in enumerate(children):
        child.call("open_writer", f"w{i}", str(tmp_path / "j"), {"precommit": 4 << 10, "segment_bytes": 16 << 10})
    for i, child in enumerate(children):
        child.start("append", f"w{i}", 60, 5_000 * i * i)
    for child in children:
        child.result()
    check_units(tmp_path / "j", [unit for child in children for unit in child.acknowledged])


def test_threads_of_one_process_share_a_writer(spawn, tmp_path):
    child, other = spawn(), spawn()
    for process in (child, other):
        process.call("open_writer", "w", str(tmp_path / "j"), {"segment_bytes": 64 << 10})
    child.start("append_in_threads", ["t0", "t1", "t2", "t3"], 100, "w")
    other.start("append_in_threads", ["u0", "u1"], 100, "w")
    child.result(), other.result()
    records = check_units(tmp_path / "j", child.acknowledged + other.acknowledged)
    assert len(records) == 600


def test_several_writers_of_one_process_are_one_to_the_others(tmp_path):
    """They close one by one."""
    path = tmp_path / "j"
    first, second, third = (jlog.Writer(path, precommit=precommit) for precommit in (4 << 10, 0, 128 << 10))
    assert [first.append(b"a"), second.append(b"b"), third.append(b"c")] == [0, 1, 2]
    first.close()
    with pytest.raises(jlog.JournalClosed):
        first.append(b"closed")
    assert second.append(b"d") == 3
    second.close()
    assert third.append(b"e") == 4
    third.close()
    assert [value for _, value in read_all(path)] == [b"a", b"b", b"c", b"d", b"e"]


def test_the_buffer_is_the_creators_and_grows_for_who_is_alone(spawn, tmp_path):
    path, child = str(tmp_path / "j"), spawn()
    child.call("open_writer", "w", path, {"precommit": 8 << 10})
    with jlog.Writer(path, precommit=1 << 20) as writer:
        assert writer.precommit == 8 << 10
    child.call("append", "w", 10)
    child.call("close", "w")
    with jlog.Writer(path, precommit=1 << 20) as writer:
        assert writer.precommit == 1 << 20
        child.call("open_writer", "small", path, {"precommit": 4 << 10})
        child.call("append", "small", 1, 500_000)
    check_units(path, child.acknowledged)


def test_a_pickled_writer_opens_the_journal_where_it_arrives(spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    with jlog.Writer(path, precommit=0, lock_timeout=30.0) as writer:
        child.call("unpickle_writer", "w", pickle.dumps(writer).hex())
        child.call("append", "w", 5)
        child.call("close", "w")
    check_units(path, child.acknowledged)


def test_an_exclusive_writer_keeps_others_out_until_it_is_gone(spawn, tmp_path, raised_by):
    path, owner, other = str(tmp_path / "j"), spawn(), spawn()
    owner.call("open_writer", "w", path, {"exclusive": True})
    assert raised_by(other, "open_writer", "w", path, {}).kind == "JournalLocked"
    assert raised_by(other, "open_writer", "w", path, {"exclusive": True}).kind == "JournalLocked"
    owner.call("append", "w", 3)
    owner.call("close", "w")
    other.call("open_writer", "w", path, {})
    assert raised_by(owner, "open_writer", "w", path, {"exclusive": True}).kind == "JournalLocked"
    other.call("close", "w")
    owner.call("open_writer", "x", path, {"exclusive": True})
    owner.kill()
    other.call("open_writer", "w", path, {})
    other.call("append", "x", 3, 0, "w")
    records = read_all(path)
    assert [part_of(value).writer for _, value in records] == ["w"] * 3 + ["x"] * 3


def test_a_second_writer_in_its_process_leaves_it_exclusive(spawn, tmp_path, raised_by):
    path, owner, other = str(tmp_path / "j"), spawn(), spawn()
    owner.call("open_writer", "w", path, {"exclusive": True})
    owner.call("open_writer", "second", path, {})
    assert raised_by(other, "open_writer", "w", path, {}).kind == "JournalLocked"
    owner.call("close", "second")
    assert raised_by(other, "open_writer", "w", path, {}).kind == "JournalLocked"


def test_closing_an_exclusive_writer_lets_other_processes_in(spawn, tmp_path):
    """The other writer of its process stays open."""
    path, owner, other = str(tmp_path / "j"), spawn(), spawn()
    owner.call("open_writer", "w", path, {})
    owner.call("open_writer", "exclusive", path, {"exclusive": True})
    owner.call("close", "exclusive")
    other.call("open_writer", "w", path, {})
    other.call("append", "w", 1)


def test_commits_go_on_beside_an_exclusive_writer(spawn, tmp_path):
    path, owner = str(tmp_path / "j"), spawn()
    owner.call("open_writer", "w", path, {"exclusive": True})
    owner.call("append", "w", 3)
    with jlog.Reader(path, "billing") as reader:
        assert len(list(reader)) == 3
        reader.commit(durable=True)
        assert reader.committed == 3


def test_many_opening_at_once_make_one_journal(spawn, tmp_path):
    path, children = str(tmp_path / "j"), [spawn() for _ in range(6)]
    for i, child in enumerate(children):
        child.start("open_writer", f"w{i}", path, {"precommit": 4 << 10})
    for i, child in enumerate(children):
        child.result()
        child.start("append", f"w{i}", 20)
    for child in children:
        child.result()
        child.call("close", next(iter({unit.writer for unit in child.acknowledged})))
    check_units(path, [unit for child in children for unit in child.acknowledged])


def test_opening_and_closing_beside_living_writers_loses_nothing(spawn, tmp_path):
    path, children = str(tmp_path / "j"), [spawn() for _ in range(3)]
    for child in children:
        child.start("come_and_go", f"p{child.pid}", path, 25)
    for child in children:
        child.result()
    records = check_units(path, [unit for child in children for unit in child.acknowledged])
    assert len(records) == 3 * 25 * 4


def test_only_the_last_close_cuts_the_preallocated_end_off(spawn, tmp_path):
    path, child = tmp_path / "j", spawn()
    with jlog.Writer(path, segment_bytes=1 << 20) as writer:
        child.call("open_writer", "w", str(path), {})
        writer.append(b"first")
    segment = path / "00000000000000000000.seg"
    assert os.stat(segment).st_size == 1 << 20
    child.call("close", "w")
    assert os.stat(segment).st_size == jlog.Journal(path).size_bytes < 1000
