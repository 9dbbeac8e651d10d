"""The file `journal.meta`, which makes a directory a journal. It is replaced as a whole, never changed in place."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from jlog._core.format.checksum import crc32c
from jlog._core.format.constants import FORMAT_VERSION, NUMBER_MAX
from jlog._core.format.dual_slot import birth_us
from jlog._core.system.durable import sync_directory
from jlog.errors import CorruptJournal, JournalMoved, JournalNotFound, UnsupportedFormat
from jlog.options import stored_options
from jlog.system.files import Directory, HeldPath, file_in, is_there, open_file, read_small, write_whole

NAME = "journal.meta"
DELETED = "next.deleted"  # the name of that file from the moment at which the journal counts as deleted
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
    return parse_meta(_text_of(path), file_in(path, NAME))


def check_is(path: str, meta: Meta) -> None:
    """Raises JournalNotFound where the journal was deleted, JournalMoved where another one was created there since."""
    if read_meta(path).uuid != meta.uuid:
        raise JournalMoved(f"{path} was deleted, and another journal was created there; close this object, and open it again")


@contextmanager
def unless_deleted(path: str, meta: Meta | None = None) -> Iterator[None]:
    """Raises JournalNotFound or JournalMoved in place of the error that a file is missing, where the journal was deleted in the
    meantime."""
    try:
        yield
    except (FileNotFoundError, CorruptJournal):
        if meta is None:
            read_meta(path)
        else:
            check_is(path, meta)
        raise


class MetaReader:
    """Reads the file of one journal many times a second, as read_meta() does. Parses it anew only where its text has
    changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: tuple[bytes, Meta] | None = None

    def read(self) -> Meta:
        """Returns the same object until the text changes."""
        text = _text_of(self._path)
        if self._known is None or self._known[0] != text:
            self._known = text, parse_meta(text, file_in(self._path, NAME))
        return self._known[1]


def _text_of(path: str) -> bytes:
    name = file_in(path, NAME)
    try:
        return read_small(name, BYTES_MAX)
    except FileNotFoundError:
        what = "does not exist" if not os.path.lexists(path) else f"has no {NAME}"
        message = f"{path} {what}: there is no journal; `jlogtool create` or jlog.Writer creates one"
        if is_there(file_in(path, DELETED)):
            message = f"{path} was a journal, and its deletion was cut short: delete it again, or create a journal there"
        elif _has_segments(path):
            message = f"{name} is missing, but segments are there; `jlogtool repair` creates it anew from them"
        raise JournalNotFound(message, path) from None
    except NotADirectoryError:
        message = f"{path} is a file, a journal is a directory; name the journal's directory"
        raise JournalNotFound(message, path) from None


def _has_segments(path: str) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError):
        return any(name.endswith(".seg") for name in os.listdir(path))
    return False


def hold_journal(path: str) -> tuple[HeldPath, Meta]:
    """Opens the directory of a journal, and reads its `journal.meta`. Raises as read_meta() does."""
    try:
        held = HeldPath(path)
    except (FileNotFoundError, NotADirectoryError):
        read_meta(path)  # says what is missing
        raise
    return held, read_meta(held)


def parse_meta(text: bytes, name: str) -> Meta:
    """Creates a Meta from the content of a `journal.meta`; `name` is the path that errors name."""
    body, begin = checked_body(text, _FIRST_LINE, FORMAT_VERSION, name, NAME)
    try:
        return _meta_of(parse_json(body))
    except (ValueError, TypeError) as error:
        raise CorruptJournal(name, begin, f"its content is not valid: {error}") from None


def checked_body(text: bytes, first_line: re.Pattern[bytes], newest: int, name: str, what: str) -> tuple[bytes, int]:
    """Returns the content of a file after its first line, and where that begins. The first line states the version and the
    checksum of the rest, as these groups. Raises CorruptJournal, or UnsupportedFormat for a version after the `newest`. name:
    the path that errors name. what: the kind of file."""
    first = first_line.match(text)
    if first is None:
        raise CorruptJournal(name, 0, f"its first line is not the first line of a {what}")
    if int(first[1]) > newest:
        raise UnsupportedFormat(f"{name} has format version {int(first[1])}, this jlog reads up to {newest}: upgrade pyjlog")
    body = text[first.end() :]
    if crc32c(body) != int(first[2], 16):
        raise CorruptJournal(name, first.end(), "its checksum does not match")
    return body, first.end()


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
    with open_file(file_in(path, NAME)) as file:
        return (os.fstat(file.fd).st_ino, birth_us(file.fd)) != (meta.inode, meta.birth_us)


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


def journals_below(directory: str, tell: Callable[[OSError], object] = lambda _: None) -> Iterator[str]:
    """Yields the paths of the journals in a directory, in order. Raises OSError where `directory` cannot be read. tell: is
    called with each error below it."""
    os.stat(directory)

    def cannot_be_read(error: OSError) -> None:
        if error.filename == directory:
            raise error
        tell(error)

    for path, directories, files in os.walk(directory, onerror=cannot_be_read):
        directories.sort()
        if NAME in files:
            directories.clear()
            yield path
