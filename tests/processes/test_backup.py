"""A backup beside processes that write, roll, read and clean."""

import jlog
from processes.units import check_units, values_of

END = values_of("end", 0)[0]
OPTIONS = {"precommit": 4 << 10, "segment_bytes": 8 << 10}


def test_each_copy_holds_all_that_was_acknowledged_before_it(spawn, tmp_path):
    path = tmp_path / "j"
    writers = [spawn() for _ in range(4)]
    for i, writer in enumerate(writers):
        writer.call("open_writer", f"w{i}", str(path), OPTIONS)
        writer.call("open_writer", "direct", str(path), {"precommit": 0})
    consumer = spawn()
    consumer.start("consume", "billing", str(path), END.decode())
    consumer.wait_for("following")
    firsts = []
    for turn in range(6):
        for i, writer in enumerate(writers):
            writer.start("work", f"w{i}", 12, "direct")
        for writer in writers:
            writer.wait_for("unit")
        acknowledged = [unit for writer in writers for unit in writer.acknowledged]
        copy = jlog.Journal(path).backup(tmp_path / f"copy {turn}")
        for writer in writers:
            writer.result()
        check_units(copy.path, acknowledged, first_sequence=copy.first_sequence)
        assert copy.first_sequence <= copy.subscribers()["billing"].sequence <= copy.next_sequence
        firsts.append(copy.first_sequence)
        with jlog.Reader(copy.path, "billing") as reader:
            assert sum(1 for _ in reader) == reader.position - reader.committed
    with jlog.Writer(path) as writer:
        writer.append(END)
    consumer.result()
    assert firsts == sorted(firsts)
    assert firsts[-1] > 0  # it was cleaned meanwhile
    check_units(path, [], first_sequence=jlog.Journal(path).first_sequence)


def test_two_at_once(spawn, tmp_path):
    path = tmp_path / "j"
    with jlog.Writer(path, **OPTIONS) as writer:
        acknowledged = [writer.append(values_of("w", i, size=100)[0]) for i in range(500)]
        children = [spawn(), spawn()]
        for i, child in enumerate(children):
            child.start("backup", str(path), str(tmp_path / f"copy {i}"))
        for child in children:
            child.result()
    for i in range(2):
        assert len(jlog.Journal(tmp_path / f"copy {i}")) == len(acknowledged)
