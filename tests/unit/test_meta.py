"""journal.meta, and how a journal is made: damage, newer versions, a creation that was killed."""

import json
import os
import re

import pytest

import jlog
import oracle
from jlog.storage.meta import read_meta, write_meta

pytestmark = pytest.mark.damage


@pytest.fixture
def path(tmp_path):
    jlog.Journal.create(tmp_path / "j")
    return tmp_path / "j"


@pytest.fixture
def meta(path):
    return path / "journal.meta"


OPENERS = {
    "Journal": jlog.Journal,
    "Reader": jlog.Reader,
    "Writer": jlog.Writer,
    "Writer, create=False": lambda path: jlog.Writer(path, create=False),
    "delete": jlog.Journal.delete,
}
every_opener = pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())


def test_it_is_as_the_format_says(meta):
    first, _, body = meta.read_bytes().partition(b"\n")
    assert first == b"jlog 1 crc32c=%08x" % oracle.crc32c(body)
    fields = json.loads(body)
    assert re.fullmatch("[0-9a-f]{32}", fields["uuid"])
    assert (fields["inode"], len(fields["epochs"]), fields["epochs"][0]["first_sequence"]) == (
        os.stat(meta).st_ino,
        1,
        0,
    )
    assert fields["options"]["segment_bytes"] == 64 << 20


def test_it_comes_back_as_it_was_written(path):
    meta = read_meta(str(path))
    meta.options["segment_bytes"] = 8192
    meta.epochs.append((77, 1000))
    write_meta(str(path), meta)
    assert read_meta(str(path)) == meta
    assert meta.epoch == 77


@every_opener
@pytest.mark.parametrize("at", [0, 5, 20, 40, -2])
def test_a_flipped_bit_anywhere_is_damage_with_path_and_offset(path, meta, opener, at):
    content = bytearray(meta.read_bytes())
    content[at] ^= 0x02
    meta.write_bytes(content)
    expected = jlog.UnsupportedFormat if at == 5 else jlog.CorruptJournal  # version 3 instead of 1, at byte 5
    with pytest.raises(expected, match=str(meta)):
        opener(path)
    assert meta.read_bytes() == content


@every_opener
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 500,
        b"jlog",
        b"{}",
        b"jlog 1 crc32c=00000000\n",
    ],
)
def test_a_bad_meta_is_damage(path, meta, opener, content):
    meta.write_bytes(content)
    with pytest.raises(jlog.CorruptJournal, match=str(meta)):
        opener(path)


@every_opener
def test_a_newer_version_is_not_read_and_says_to_upgrade(path, meta, opener):
    meta.write_bytes(meta.read_bytes().replace(b"jlog 1 ", b"jlog 2 ", 1))
    with pytest.raises(jlog.UnsupportedFormat, match=f"{meta}.*version 2.*upgrade"):
        opener(path)


@pytest.mark.parametrize("missing", ["journal.meta", "journal.meta bounds", "journal.meta bounds subscribers checkpoints"])
def test_a_creation_that_was_killed_is_done_again(path, missing):
    for name in missing.split():
        os.rmdir(path / name) if (path / name).is_dir() else os.unlink(path / name)
    with pytest.raises(jlog.JournalNotFound):
        jlog.Journal(path)
    with jlog.Writer(path) as writer:
        assert writer.append(b"value") == 0
    oracle.check_journal(path)


def test_all_files_have_the_directorys_mode_and_group(tmp_path):
    (tmp_path / "shared").mkdir()
    os.chmod(tmp_path / "shared", 0o2770)
    group = 12345 if os.geteuid() == 0 else os.getgid()
    os.chown(tmp_path / "shared", -1, group)
    path = tmp_path / "shared"
    with jlog.Writer(path, precommit=4 << 10, segment_bytes=4 << 10) as writer:
        for _ in range(100):
            writer.append(b"x" * 100)
        with jlog.Reader(path, "billing") as reader:
            reader.checkpoint("c")
    files = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    assert len(files) > 8
    wrong = {file: oct(os.stat(file).st_mode) for file in files if os.stat(file).st_mode & 0o777 != 0o660}
    assert {os.stat(file).st_gid for file in files} == {group}
    assert wrong == {}
