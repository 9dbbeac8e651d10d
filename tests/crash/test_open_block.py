"""A reader reads the buffer beside those that write to it, without a lock, and tells what is torn from what is damaged."""

import sys
import threading
from pathlib import Path

import pytest

import jlog
import oracle
from crash.tampering import change, copy_of_killed, flip, open_body_at

SLOT_WORDS_AT = (560, 624)


@pytest.mark.usefixtures("failpoints")
def test_a_rotation_while_the_page_is_read_is_not_damage(spawn, path):
    """The reader gets the generation from before, and of its slot a word that is emptied already for the block after the
    next."""
    writer, reader = spawn(), spawn()
    writer.call("open_writer", "w", str(path), {"precommit": 4 << 10})
    writer.call("append", "w", 3, 100)
    before = (path / "precommit").read_bytes()
    writer.call("append", "w", 120, 100)
    writer.kill()
    after = (path / "precommit").read_bytes()
    change(path / "precommit", 0, before)
    reader.call("open_reader", "r", str(path))
    assert reader.call("look_again", "r") == [0, 1, 2]
    torn, generation = bytearray(before), oracle.read_page(str(path), uuid_of(path)).generation
    at = SLOT_WORDS_AT[generation & 1]
    torn[at : at + 8] = bytes(8)
    change(path / "precommit", 0, bytes(torn))
    reader.call("arm", "page.read=stop@1")
    reader.start("look_again", "r")
    reader.is_stopped()
    change(path / "precommit", 0, after)
    assert oracle.read_page(str(path), uuid_of(path)).generation >= generation + 2
    reader.continues()
    assert reader.result() == list(range(3, 123))


def uuid_of(path: Path) -> bytes:
    return bytes.fromhex(jlog.Journal(path).uuid)


BODY_BYTES = 2 << 20


@pytest.fixture
def damaged(path, tmp_path):
    """A journal that killed writers have left, with a bit flipped within a large open block."""
    with jlog.Writer(path, precommit=2 * BODY_BYTES) as writer:
        writer.extend([bytes(BODY_BYTES // 8)] * 8)
        assert jlog.Journal(path).stats().open_bytes > BODY_BYTES
        found = copy_of_killed(path, tmp_path / "killed")
    flip(found / "precommit", open_body_at(found) + BODY_BYTES // 2, 3)
    return found


def bytes_read() -> int:
    """By this process, of files."""
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])


@pytest.mark.damage
def test_damage_in_a_large_open_block_is_found_after_a_few_reads(damaged):
    with jlog.Reader(damaged) as reader:
        before = bytes_read()
        with pytest.raises(jlog.CorruptJournal, match="checksum"):
            reader.read(1)
        assert bytes_read() - before < 6 * BODY_BYTES


@pytest.mark.damage
def test_other_threads_go_on_while_a_large_open_block_is_read(damaged):
    """The interpreter never takes its turn from a thread here: the other one comes to run only where it is let go."""
    turn, ran, interval = threading.Lock(), [], sys.getswitchinterval()
    turn.acquire()
    other = threading.Thread(target=lambda: (turn.acquire(), ran.append(True)))
    with jlog.Reader(damaged) as reader:
        other.start()
        sys.setswitchinterval(3600)
        try:
            turn.release()
            for _ in range(1000):  # the kernel says when a thread that may run does
                with pytest.raises(jlog.CorruptJournal, match="checksum"):
                    reader.read(1)
                if ran:
                    break
            assert ran
        finally:
            sys.setswitchinterval(interval)
            other.join()
