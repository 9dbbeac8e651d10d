"""A source that lies cannot crash an import, hang it, or take memory without bound."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

import exhaustive
import jlog
from elsewhere import python
from jlog.libjlog.format import Layout, allowed_name, original_name
from jlog.libjlog.stream import Stream
from jlog.positions.names import is_name
from libjlog.clib import BEGIN_SECONDS, LZ4, OLD, PLAIN, CWriter, message, numbered, write_index
from libjlog.conftest import contents, import_all, values
from patience import HUNG_SECONDS

SECONDS = float(os.environ.get("JLOG_FUZZ_SECONDS", "0")) or exhaustive.count(4, 60)


def metastore(source: Path, magic: int, newest: int = 0) -> None:
    source.mkdir()
    (source / "metastore").write_bytes(struct.pack("<4I", newest, 4 << 20, 1, magic))


def import_within(source: Path, journal: Path, mebibytes: int) -> subprocess.CompletedProcess[str]:
    """Imports in a process that may have no more memory than that, beside what Python itself needs."""
    limit = mebibytes << 20
    code = (
        "import resource, sys; from jlog.cli import main; import jlog.cli.commands.libjlog, lz4.block\n"
        "import re; used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) << 10\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + {limit}, used + {limit})); main(sys.argv[1:])"
    )
    return python(code, "import", source, journal)


@pytest.mark.parametrize("stored", [10, 100_000])
def test_an_lz4_message_that_claims_too_much_takes_no_memory(stored: int, source: Path, journal: Path) -> None:
    metastore(source, LZ4)
    bomb = struct.pack("<5I", LZ4, BEGIN_SECONDS, 0, 1 << 30, stored) + bytes(stored)
    (source / "00000000").write_bytes(bomb + message(LZ4, "<", b"after", BEGIN_SECONDS))
    done = import_within(source, journal, 64)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    assert values(journal) == [b"after"]


def test_a_segment_of_nothing_but_headers_ends_soon(source: Path, journal: Path) -> None:
    """Each of them would have to be followed to its end."""
    metastore(source, PLAIN)
    broken = message(PLAIN, "<", b"", BEGIN_SECONDS) * 200_000 + b"\0" * 17
    (source / "00000000").write_bytes(broken)
    (source / "00000001").write_bytes(b"junk" + (broken + b"x") * 2)
    started = time.process_time()
    told = import_all(source, journal)
    assert told.damage
    assert time.process_time() - started < HUNG_SECONDS / 2


def test_a_file_full_of_magics_ends_soon(source: Path, journal: Path) -> None:
    metastore(source, PLAIN)
    (source / "00000000").write_bytes(struct.pack("<I", PLAIN) * (1 << 18))
    (source / "00000001").write_bytes(struct.pack("<4I", PLAIN, 1, 1, 1) * (1 << 16))
    (source / "00000002").write_bytes(message(PLAIN, "<", b"sound", BEGIN_SECONDS))
    import_all(source, journal)
    assert values(journal)[-1] == b"sound"


def test_a_sparse_segment_of_many_mebibytes_takes_no_memory(source: Path, journal: Path) -> None:
    metastore(source, PLAIN)
    (source / "00000000").write_bytes(message(PLAIN, "<", b"first", BEGIN_SECONDS))
    os.truncate(source / "00000000", 256 << 20)
    CWriter(source).roll()
    (source / "00000001").write_bytes(message(PLAIN, "<", b"next", BEGIN_SECONDS))
    done = import_within(source, journal, 96)
    assert done.returncode == 3, done.stderr
    assert values(journal) == [b"first", b"next"]


def test_a_message_larger_than_a_record_is_told_and_passed_over(source: Path, journal: Path) -> None:
    metastore(source, PLAIN)
    size = (1 << 30) + 1
    (source / "00000000").write_bytes(struct.pack("<4I", PLAIN, BEGIN_SECONDS, 0, size))
    os.truncate(source / "00000000", 16 + size)
    with open(source / "00000000", "ab") as file:
        file.write(message(PLAIN, "<", b"after", BEGIN_SECONDS))
    done = import_within(source, journal, 64)
    assert (done.returncode, "at most 1 GiB" in done.stderr) == (3, True), done.stderr
    assert values(journal) == [b"after"]


def test_a_sparse_buffer_is_refused_before_it_is_read(source: Path, journal: Path) -> None:
    metastore(source, PLAIN)
    (source / "00000000").touch()
    (source / "pre_commit").write_bytes(struct.pack("<I", 0xFFFFFFFF))
    os.truncate(source / "pre_commit", (1 << 32) + 3)
    with pytest.raises(jlog.UnsupportedFormat, match="at most"):
        import_all(source, journal)
    assert not journal.exists()


@pytest.mark.parametrize("magic", [PLAIN, LZ4])
def test_a_segment_that_is_cut_off_while_it_is_read_ends_the_reading(magic: int, source: Path) -> None:
    writer = CWriter(source, magic=magic)
    for number in range(100):
        writer.write(numbered(number), BEGIN_SECONDS + number)
    content = (source / "00000000").read_bytes()
    layout = Layout(magic, False)
    for left in range(0, len(content), 97):
        for claimed in (len(content), len(content) + 20, len(content) + (9 << 20)):

            def read(at: int, size: int, left: int = left) -> bytes:
                return content[at : min(at + size, left)]

            pieces = list(Stream("cut", read, claimed).pieces(layout, 0))
            assert sum(piece.messages for piece in pieces) <= 100


def test_names_stay_different_and_come_back() -> None:
    dice = random.Random(5)
    alphabet = [*b"ab/%.0129-:T\x00\x1f\xff\xc3\xbc", 0x25, 0x32, 0x46]
    names = {bytes(dice.choices(alphabet, k=dice.randrange(1, 8))) for _ in range(20_000)} | {b"begin", b"end", b"."}
    here = {name: allowed_name(name) for name in names}
    assert all(map(is_name, here.values()))
    assert len(set(here.values())) == len(names)
    assert all(original_name(text) == name for name, text in here.items())


def test_random_changes_never_crash_and_a_second_import_brings_nothing(tmp_path: Path) -> None:
    until, seed, imported = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < until:
        dice = random.Random(seed)
        source, journal = tmp_path / f"source-{seed}", tmp_path / f"journal-{seed}"
        make(dice, source)
        changes = [change(dice, source) for _ in range(dice.randint(1, 4))]
        before = contents(source)
        try:
            import_all(source, journal)
            again = import_all(source, journal)
            assert again.result.records == 0
            imported += 1
        except (jlog.JournalError, OSError):
            pass  # it says what is wrong
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {changes}") from error
        assert contents(source) == before
        shutil.rmtree(source)
        shutil.rmtree(journal, ignore_errors=True)
        seed += 1
    assert imported


def make(dice: random.Random, source: Path) -> None:
    writer = CWriter(
        source,
        magic=dice.choice((PLAIN, LZ4, OLD)),
        order=dice.choice("<>"),
        unit_limit=dice.choice((300, 2000)),
        precommit=dice.choice((0, 100, 1000)),
    )
    for number in range(dice.randrange(60)):
        writer.write(numbered(number), BEGIN_SECONDS + number)
    writer.subscribe(b"one", dice.randrange(4), dice.randrange(9))
    if dice.random() < 0.3:
        write_index(source / "00000000", writer.order)


def change(dice: random.Random, source: Path) -> str:
    file = dice.choice(sorted(source.iterdir()))
    content = bytearray(file.read_bytes())
    at = dice.randrange(len(content) + 1)
    kind = dice.choice(("flip", "cut", "grow", "number", "zeros", "swap"))
    if kind == "cut":
        del content[at:]
    elif kind == "grow":
        content += dice.choice((bytes(50), dice.randbytes(40), content[:60], bytes(content[-30:])))
    elif kind == "number":
        content[at : at + 4] = struct.pack(
            "<I", dice.choice((0, 1, 16, 0x7FFFFFFF, 0xFFFFFFFF, PLAIN, LZ4, dice.getrandbits(32)))
        )
    elif kind == "zeros":
        content[at : at + 20] = bytes(20)
    elif kind == "swap":
        other = dice.choice(sorted(source.iterdir()))
        content[:] = other.read_bytes()
    elif at < len(content):
        content[at] ^= 1 << dice.randrange(8)
    file.write_bytes(content)
    return f"{file.name}: {kind} at {at}"
