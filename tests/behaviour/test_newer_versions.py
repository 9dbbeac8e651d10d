"""Each kind of file that a later version of jlog has written is UnsupportedFormat. It does not count as damage, and stays."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import jlog
import oracle

LATER = 99


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with two segments and a position, after a power loss; an archive of the first segment is beside it."""
    retention = jlog.Retention(max_bytes=1 << 30, delete_read=False, archive=f"file://{tmp_path}/archive")
    with jlog.Writer(tmp_path / "before", retention=retention) as writer:
        with jlog.Reader(writer.path, "billing") as reader:
            writer.extend([b"first"] * 5)
            writer.roll()
            list(reader.values())
            reader.commit()
        jlog.Journal(writer.path).archive()
        writer.extend([b"second"] * 5)
        writer.flush()
        shutil.copytree(writer.path, tmp_path / "j")
    (tmp_path / "j" / "precommit").unlink()
    return tmp_path / "j"


def change(file: Path, offset: int, content: bytes) -> None:
    with open(file, "r+b") as opened:
        opened.seek(offset)
        opened.write(content)


def restate(file: Path, size: int, *offsets: int, version: int = LATER) -> None:
    """States the version in a structure, and the CRC of that."""
    for offset in offsets:
        structure = file.read_bytes()[offset : offset + size]
        structure = structure[:8] + struct.pack("<I", version) + structure[12:]
        change(file, offset, structure[:12] + struct.pack("<I", oracle.structure_crc(structure)) + structure[16:])


def restate_text(file: Path, before: bytes) -> None:
    content = file.read_bytes()
    file.write_bytes(content.replace(before, before.replace(b"1", b"%d" % LATER).replace(b"2", b"%d" % LATER), 1))


def restate_block(file: Path, at: int, value: int) -> None:
    """Puts a kind, a codec or flags that a later version may have into the first block with records, with its right CRC."""
    content = file.read_bytes()
    uuid, segment = content[16:32], content[40:48]
    offset = 96 + 72 + struct.unpack_from("<I", content, 96 + 24)[0]
    header = bytearray(content[offset : offset + 72])
    header[at] = value
    header[8:12] = bytes(4)
    header[8:12] = struct.pack("<I", oracle.crc32c(uuid + segment + struct.pack("<Q", offset) + bytes(header)))
    change(file, offset, bytes(header))


def newest(path: Path) -> Path:
    return max(path.glob("*.seg"))


def contents(path: Path) -> dict[str, bytes]:
    names = ("journal.meta", "bounds", "subscribers/billing", *(file.name for file in path.glob("*.seg")))
    return {name: (path / name).read_bytes() for name in names}


def read(path: Path) -> None:
    with jlog.Reader(path) as reader:
        list(reader)


def read_archive(path: Path) -> None:
    with jlog.Reader(f"file://{path.parent}/archive") as reader:
        list(reader)


def of_archive(path: Path) -> Path:
    return next((path.parent / "archive").rglob("*.json"))


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "segment": (lambda path: restate(newest(path), 96, 0), read),
    "kind of a block": (lambda path: restate_block(newest(path), 4, 9), read),
    "codec of a block": (lambda path: restate_block(newest(path), 5, 9), read),
    "flags of a block": (lambda path: restate_block(newest(path), 7, 0x80), read),
    "journal.meta": (lambda path: restate_text(path / "journal.meta", b"jlog 1"), read),
    "bounds": (lambda path: restate(path / "bounds", 128, 0, 4096), read),
    "position": (
        lambda path: restate(path / "subscribers" / "billing", 64, 0, 4096),
        lambda path: jlog.Reader(path, "billing"),
    ),
    "manifest": (lambda path: restate_text(of_archive(path), b'"format": 2'), read_archive),
}


@pytest.mark.damage
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_later_version_has_written_is_told_as_such(path: Path, kind: str) -> None:
    write_later, read_it = KINDS[kind]
    write_later(path)
    with pytest.raises(jlog.UnsupportedFormat, match="upgrade pyjlog"):
        read_it(path)


@pytest.mark.damage
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "manifest"])
def test_neither_a_writer_nor_a_repair_changes_what_a_later_version_has_written(path: Path, kind: str) -> None:
    """Also a block at the end is not taken for the end of a torn write."""
    KINDS[kind][0](path)
    before = contents(path)
    with pytest.raises(jlog.UnsupportedFormat, match="upgrade pyjlog"):
        jlog.Journal(path).repair()
    assert contents(path) == before
    if kind == "position":
        jlog.Writer(path).close()
        assert contents(path)["subscribers/billing"] == before["subscribers/billing"]
    else:
        with pytest.raises(jlog.UnsupportedFormat, match="upgrade pyjlog"):
            jlog.Writer(path)
        assert contents(path) == before


def test_a_segment_of_version_1_states_version_2_before_blocks_of_that_follow(tmp_path: Path) -> None:
    """Whatever an earlier jlog reads there afterwards, it tells as a newer version."""
    path = tmp_path / "j"
    with jlog.Writer(path) as writer:
        writer.append(b"old")
    restate(newest(path), 96, 0, version=1)
    assert jlog.Journal(path).verify().ok
    with jlog.Writer(path) as writer:
        writer.append(b"new")
    assert struct.unpack_from("<I", newest(path).read_bytes(), 8)[0] == 2
    assert [path.name for path in path.glob("*.seg")] == ["00000000000000000000.seg"]
    with jlog.Reader(path) as reader:
        assert list(reader.values()) == [b"old", b"new"]


def test_an_archive_states_version_2(path: Path) -> None:
    assert json.loads(of_archive(path).read_text())["format"] == 2
