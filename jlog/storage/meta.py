"""The file `journal.meta`, which makes a directory a journal. It is replaced as a whole, never changed in place."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from jlog._core.format.checksum import crc32c
from jlog._core.format.constants import FORMAT_VERSION, NUMBER_MAX, RESERVATION_STRIDE
from jlog._core.format.dual_slot import BoundsFile, birth_us
from jlog._core.recover.recovery import create_segment
from jlog._core.segments.build import segment_start
from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog.errors import CorruptJournal, JournalExists, JournalNotFound, UnsupportedFormat
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT, check_options, check_precommit, stored_options
from jlog.system.files import Directory, open_file, read_small, share, write_whole

NAME = "journal.meta"
NEW_SEGMENT_BYTES_MAX = 512  # a header, and a block without state
DIRECTORIES = ("subscribers", "checkpoints")
BYTES_MAX = 4 << 20  # a larger file is not a journal.meta, and is not read
DEPTH_MAX = 16  # of the brackets in a journal.meta, which has 3
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_UUID = re.compile(r"[0-9a-f]{32}")
_FIRST_LINE = re.compile(rb"jlog (\d{1,9}) crc32c=([0-9a-f]{8})\n")


@dataclass
class Meta:
    """Identity and options of a journal."""

    uuid: bytes
    epochs: list[tuple[int, int]]  # random number of each epoch, and the sequence at which it began
    options: dict[str, Any] = field(default_factory=dict)
    inode: int = 0
    birth_us: int = 0

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]


def read_meta(path: str) -> Meta:
    """Reads the file. Raises JournalNotFound where `path` is not a journal, CorruptJournal or UnsupportedFormat where it cannot
    be read."""
    name = os.path.join(path, NAME)
    try:
        text = read_small(name, BYTES_MAX)
    except FileNotFoundError:
        what = "does not exist" if not os.path.lexists(path) else f"has no {NAME}"
        message = f"{path} {what}: there is no journal; `jlogtool create` or jlog.Writer creates one"
        if os.path.isdir(path) and any(entry.endswith(".seg") for entry in os.listdir(path)):
            message = f"{name} is missing, but segments are there; `jlogtool repair` creates it anew from them"
        raise JournalNotFound(message, path) from None
    except NotADirectoryError:
        message = f"{path} is a file, a journal is a directory; name the journal's directory"
        raise JournalNotFound(message, path) from None
    return parse_meta(text, name)


def parse_meta(text: bytes, name: str) -> Meta:
    """Creates a Meta from the content of a `journal.meta`; `name` is the path that errors name."""
    first = _FIRST_LINE.match(text)
    if first is None:
        raise CorruptJournal(name, 0, "its first line is not the first line of a journal.meta")
    if int(first[1]) > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{name} has format version {int(first[1])}, this jlog reads up to {FORMAT_VERSION}: upgrade pyjlog"
        )
    body = text[first.end() :]
    if crc32c(body) != int(first[2], 16):
        raise CorruptJournal(name, first.end(), "its checksum does not match")
    try:
        return _meta_of(parse_json(body))
    except (ValueError, TypeError) as error:
        raise CorruptJournal(name, first.end(), f"its content is not valid: {error}") from None


def parse_json(text: bytes) -> dict[str, Any]:
    """Parses a JSON object out of a file that anybody may have written. Raises ValueError for anything else."""
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_no_constant)
    except RecursionError:
        if _depth(text) > DEPTH_MAX:
            raise ValueError("it is nested too deeply") from None
        raise  # the program's own stack is deep, and the file may be whole
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _depth(text: bytes) -> int:
    """Returns how deeply the brackets of a JSON text are nested."""
    brackets = _STRING.sub(b"", text)
    depth = most = 0
    for byte in brackets:
        depth += (byte in b"[{") - (byte in b"]}")
        most = max(most, depth)
    return most


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def whole_number(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    """Returns the field. Raises ValueError where it is missing, is not an integer, or is not from `low` to `high`."""
    found = fields.get(name)
    if type(found) is not int or not low <= found <= high:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
    return found


def check_uuid(found: Any) -> str:
    """Returns the uuid. Raises ValueError for a text that is not written as a journal's uuid is."""
    if not isinstance(found, str) or not _UUID.fullmatch(found):
        raise ValueError("uuid is not 32 lower-case hex digits")
    return found


def _meta_of(fields: dict[str, Any]) -> Meta:
    uuid, epochs, options = check_uuid(fields.get("uuid")), fields.get("epochs"), fields.get("options")
    if not isinstance(epochs, list) or not epochs or not all(isinstance(epoch, dict) for epoch in epochs):
        raise ValueError("epochs is not a list of one or more objects")
    if not isinstance(options, dict):
        raise ValueError("options is not an object")
    begun = [
        (whole_number(epoch, "epoch", 0, (1 << 64) - 1), whole_number(epoch, "first_sequence", 0, NUMBER_MAX))
        for epoch in epochs
    ]
    return Meta(
        bytes.fromhex(uuid),
        begun,
        stored_options(options),
        whole_number(fields, "inode", 0, (1 << 64) - 1),
        whole_number(fields, "birth_us", -(1 << 63), (1 << 63) - 1),
    )


def is_a_copy(path: str, meta: Meta) -> bool:
    """Says whether the directory was copied or restored: then `meta` was read from another file than was written."""
    fd = open_file(os.path.join(path, NAME))
    try:
        return (os.fstat(fd).st_ino, birth_us(fd)) != (meta.inode, meta.birth_us)
    finally:
        os.close(fd)


def write_meta(path: str, meta: Meta) -> None:
    """Replaces the file. On return it survives a power loss. Called under the open lock."""
    with Directory(path) as directory, directory.made(NAME, f".{NAME}") as fd:
        meta.inode = os.fstat(fd).st_ino
        meta.birth_us = birth_us(fd)
        fields = {
            "uuid": meta.uuid.hex(),
            "epochs": [{"epoch": epoch, "first_sequence": first} for epoch, first in meta.epochs],
            "inode": meta.inode,
            "birth_us": meta.birth_us,
            "options": meta.options,
        }
        body = json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"
        write_whole(fd, b"jlog %d crc32c=%08x\n" % (FORMAT_VERSION, crc32c(body)) + body, 0)
    sync_directory(path)


def writer_options(
    path: str, precommit: int, given: dict[str, Any], create: bool, deadline: Deadline
) -> tuple[int, dict[str, Any]]:
    """Creates the journal if there is none and `create` allows it. Returns the capacity to open the buffer with, 0 for a writer
    that bypasses the buffer, and the options that were given."""
    capacity = check_precommit(precommit)
    options = check_options(given)
    if create:
        create_if_missing(path, deadline, **options, precommit=capacity or PRECOMMIT_DEFAULT)
    return capacity, options


def create_if_missing(path: str, deadline: Deadline, **options: Any) -> None:
    """Creates a journal with these options, and the defaults of the others, unless there is one."""
    if not os.path.exists(os.path.join(path, NAME)):
        created = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, **options}
        create_journal(path, created, exist_ok=True, deadline=deadline)


def create_journal(path: str, options: dict[str, Any], *, exist_ok: bool, deadline: Deadline = NEVER) -> bool:
    """Creates an empty journal. Returns False where one exists and `exist_ok`. A creation that was killed is done again. Raises
    JournalLocked where another process creates it until the deadline."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise JournalExists(f"{path} is a file; choose another path for the journal, or remove it", path)
    os.makedirs(path, exist_ok=True)
    there = os.listdir(path)
    if there and "lock" not in there:  # the lock is the first file of a journal that another process is creating
        message = f"{path} is a directory with other files; choose another path for the journal"
        raise JournalExists(message, path)
    lock_file = LockFile(os.path.join(path, "lock"), create=True)
    try:
        with lock_file.held(RANGES["open"], deadline=deadline, what="was creating or opening it"):
            if os.path.exists(os.path.join(path, NAME)):
                if not exist_ok:
                    message = f"{path} is already a journal; open it, or choose another path"
                    raise JournalExists(message, path)
                return False
            _refuse_remains(path)
            _fill(path, options, lock_file)
            return True
    finally:
        lock_file.close()


def _refuse_remains(path: str) -> None:
    """Raises CorruptJournal unless the directory has no more than a creation that was killed leaves, which has no record. A
    directory with more has lost its `journal.meta`."""
    segments = [entry for entry in os.listdir(path) if entry.endswith(".seg")]
    used = any(os.path.getsize(os.path.join(path, name)) > NEW_SEGMENT_BYTES_MAX for name in segments)
    if used or len(segments) > 1 or os.path.exists(os.path.join(path, "precommit")):
        raise CorruptJournal(
            os.path.join(path, NAME),
            0,
            "it is missing, although there are records",
        )


def share_lock(path: str, lock_file: LockFile) -> None:
    """Gives the lock file the group and the permissions of the directory. The core creates it, and knows neither."""
    with Directory(path) as directory:
        share(lock_file.fileno(), directory.fd)


def _fill(path: str, options: dict[str, Any], lock_file: LockFile) -> None:
    """Creates every file but the pre-commit buffer, which the first writer creates. `journal.meta` comes last, for it makes the
    directory a journal."""
    import secrets  # slow to import, and most programs create no journal

    meta = Meta(secrets.token_bytes(16), [(secrets.randbits(63), 0)], options)
    share_lock(path, lock_file)
    for name in DIRECTORIES:
        Directory(path, name, make=True).close()
    start = segment_start(meta.uuid, meta.epoch, 0, None, {})
    create_segment(path, 0, start)
    BoundsFile.create(os.path.join(path, "bounds"), meta.uuid, RESERVATION_STRIDE, (0, len(start), 0))
    write_meta(path, meta)
    sync_directory(os.path.dirname(os.path.abspath(path)))
