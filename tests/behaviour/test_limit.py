"""Retention(limit_bytes=): at it an append raises JournalFull and leaves nothing, until something could be removed."""

import pytest

import jlog
import oracle
from behaviour.journals import fill, read_away, value_of, values
from jlog.care import cleaning
from patience import HUNG_SECONDS
from processes.units import check_units, read_all

LIMIT = 20_000
LIMITED = {
    "precommit": 4 << 10,
    "segment_bytes": 4 << 10,
    "retention": jlog.Retention(limit_bytes=LIMIT),
}

APPENDS = {
    "append": lambda writer: writer.append(b"more"),
    "append with a key": lambda writer: writer.append(b"more", key=b"k"),
    "append of what the buffer cannot hold": lambda writer: writer.append(b"m" * 5_000),
    "append of what no limit allows": lambda writer: writer.append(b"m" * 50_000),
    "extend": lambda writer: writer.extend([b"more"] * 3),
    "extend with headers": lambda writer: writer.extend([b"more"], headers=[[("h", b"v")]]),
    "state": lambda writer: writer.extend([b"more"], state={b"more": b"v"}),
    "state alone": lambda writer: writer.extend([], state={b"more": b"v"}),
}


def fill_up(writer):
    """Writes until there is no room even for an empty record, and returns what it has written."""
    written = []
    for size in (100, 0):
        try:
            while True:
                value = value_of(writer.next_sequence)[:size]
                writer.append(value)
                written.append(value)
        except jlog.JournalFull:
            continue
    return written


@pytest.fixture(params=["buffered", "bypassing", "lz4", "one segment"])
def full(request, path):
    """A writer of a journal at its limit, of which nobody has read anything; and what it holds."""
    options = {
        "buffered": {},
        "bypassing": {"precommit": 0},
        "lz4": {"compression": "lz4"},
        "one segment": {"segment_bytes": 1 << 20},
    }[request.param]
    with jlog.Writer(path, **{**LIMITED, **options}) as writer:
        jlog.Journal(path).add_subscriber("billing")
        yield writer, fill_up(writer)


@pytest.mark.parametrize("call", APPENDS.values(), ids=APPENDS)
def test_nothing_of_a_refused_call_is_readable(full, path, call):
    writer, written = full
    for _ in range(3):
        with pytest.raises(jlog.JournalFull, match=rf"{path}.*{LIMIT} bytes.*limit_bytes"):
            call(writer)
        assert values(path) == written
        assert writer.next_sequence == len(written)
        assert jlog.Journal(path).state() == {}
    oracle.check_journal(path)


def test_the_limit_is_kept_but_for_one_block(full, path):
    writer, _ = full
    for _ in range(5):
        with pytest.raises(jlog.JournalFull):
            writer.append(b"x" * 1000)
    assert LIMIT - 6_000 <= jlog.Journal(path).size_bytes < LIMIT + 6_000


def test_it_goes_on_as_soon_as_all_was_read_and_committed(full, path):
    writer, written = full
    for _ in range(3):
        read_away(path, "billing")
        again = fill(writer, 20)
        assert values(path)[-20:] == again
        written += again + fill_up(writer)
    assert writer.next_sequence == len(written)
    assert [value for _, value in read_all(path)] == written[jlog.Journal(path).first_sequence :]


def test_it_goes_on_with_a_part_of_it_read(path):
    with jlog.Writer(path, **LIMITED) as writer:
        jlog.Journal(path).add_subscriber("billing")
        written = fill_up(writer)
        read_away(path, "billing", len(written) // 2)
        again = fill_up(writer)
        assert 0 < len(again) <= len(written) // 2 + 80


def test_segments_removed_by_others_make_room_without_a_roll(path):
    """The count in the page is as of the last time that somebody met the limit."""
    with jlog.Writer(path, **LIMITED) as writer:
        for _ in range(50):
            fill(writer, 20)
            read_away(path, "billing")
        segments = len(list(path.glob("*.seg")))
        rolls = jlog.Journal(path).stats().rolls
    assert segments <= 2
    assert rolls <= 1000 // 30, "each segment holds about 36 records"


def test_a_later_writer_raises_it_for_every_process(path, spawn, raised_by):
    child = spawn()
    with jlog.Writer(path, **LIMITED) as writer:
        jlog.Journal(path).add_subscriber("billing")
        fill_up(writer)
        child.call("open_writer", "w", str(path), {})
        assert raised_by(child, "append", "w", 1, 100).kind == "JournalFull"
        jlog.Writer(path, retention=jlog.Retention(limit_bytes=10 * LIMIT)).close()
        child.call("append", "w", 100, 100)
        jlog.Writer(path, retention=jlog.Retention()).close()
        child.call("append", "w", 1000, 200)
        jlog.Writer(path, retention=jlog.Retention(limit_bytes=LIMIT)).close()
        assert raised_by(child, "append", "w", 100, 100).kind == "JournalFull"


def test_it_holds_for_who_opens_a_full_journal_anew(path):
    with jlog.Writer(path, **LIMITED) as writer:
        jlog.Journal(path).add_subscriber("billing")
        written = fill_up(writer)
    for _ in range(2):
        with jlog.Writer(path) as writer, pytest.raises(jlog.JournalFull):
            fill(writer, 200)
    kept = values(path)
    assert kept[: len(written)] == written
    read_away(path, "billing")
    with jlog.Writer(path) as writer:
        fill(writer, 10)


def test_a_call_that_must_roll_twice_rolls_twice(path, spawn, monkeypatch):
    """It finds the limit after its roll; while it makes room, another process fills the new segment."""
    other, free_space = spawn(), cleaning.Cleaner.free_space
    options = {"precommit": 4 << 10, "segment_bytes": 4 << 10, "retention": jlog.Retention(limit_bytes=4000)}

    def make_room_for_others(*arguments):
        read_away(path, "billing")
        free_space(*arguments)
        other.call("extend", "other", 1, 4, 860)

    with jlog.Writer(path, **options) as writer:
        jlog.Journal(path).add_subscriber("billing")
        other.call("open_writer", "other", str(path), {})
        for _ in range(4):
            writer.append(b"x" * 900)
        monkeypatch.setattr(cleaning.Cleaner, "free_space", make_room_for_others)
        assert writer.append(b"x" * 900) == 8
        assert len(list(path.glob("*.seg"))) == 2


def test_processes_at_the_limit_go_on_as_a_subscriber_reads(path, spawn):
    """Nobody waits: each is refused until there is room."""
    jlog.Writer(path, **LIMITED).close()
    jlog.Journal(path).add_subscriber("billing")
    children = [spawn() for _ in range(3)]
    for number, child in enumerate(children):
        child.call("open_writer", f"w{number}", str(path), {"precommit": (4 << 10, 0, 4 << 10)[number]})
        child.start("append_what_there_is_room_for", f"w{number}", 200, 100)
    with jlog.Reader(path, "billing") as reader:
        seen = []
        for record in reader.follow(timeout=HUNG_SECONDS):
            seen.append((record.sequence, record.value))
            if len(seen) % 10 == 0:
                reader.commit()
            if len(seen) == 600:
                break
    for child in children:
        child.result()
    units = [unit for child in children for unit in child.acknowledged]
    assert sorted(sequence for sequence, _ in seen) == sorted(unit.sequence for unit in units)
    assert len(units) == 600
    first = jlog.Journal(path).first_sequence
    assert first > 0
    check_units(path, units, first_sequence=first)


def test_an_unfinished_record_of_workers_holds_its_segment_until_it_is_finished(path):
    with jlog.Writer(path, **LIMITED) as writer, jlog.Worker(path, "billing") as worker:
        fill_up(writer)
        tasks = []
        while found := worker.take(100, timeout=0):
            tasks += found
        worker.ack(tasks[1:])
        with pytest.raises(jlog.JournalFull):
            writer.append(b"x" * 1000)
        tasks[0].ack()
        writer.append(b"x" * 1000)
