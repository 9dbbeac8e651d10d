"""The files of a shared subscriber: its window, which belongs to this boot, and the subscriber's options with a durable copy of
what is unfinished. docs/format.md, "Shared subscribers", specifies both."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from jlog._core.format.checksum import crc32c
from jlog._core.format.constants import NUMBER_MAX
from jlog._core.format.dual_slot import birth_us
from jlog._core.system.durable import sync_data, sync_directory
from jlog._core.system.notices import warn
from jlog._core.work.window import FOLDER, window_path
from jlog.errors import CorruptJournal, JournalError
from jlog.storage.meta import Meta, checked_body, parse_json, whole_number
from jlog.system.files import Directory, open_file, read_small, write_whole

VERSION = 2
BYTES_MAX = 1 << 30
WINDOW_DEFAULT = 65_536
WINDOW_MAX = 1 << 24
Order = Literal["any", "key"]
ORDERS = get_args(Order)
HEAD_BYTES = 64 << 10  # the options come first in the file
LINES_BYTES_MIN = 64 << 10  # the file is not replaced before it has so many bytes of lines after the copy
File = tuple[int, int, int]  # inode, bytes without the lines after the copy, all bytes
_FIRST_LINE = re.compile(rb"jlog work (\d{1,9}) crc32c=([0-9a-f]{8})\n")


@dataclass(frozen=True)
class WorkOptions:
    """The options of a shared subscriber."""

    order: str = "any"
    max_attempts: int | None = None
    dead_letters: str | None = None
    backoff: tuple[float, float] = (1.0, 60.0)
    window: int = WINDOW_DEFAULT


@dataclass(frozen=True)
class DurableCopy:
    """What the file of a shared subscriber holds. Without `next_sequence` everything from the committed position on is
    unfinished. Else every record before it is finished that is not in `unfinished`: [sequence, hash of the key, attempts,
    failures] of each. `rewinds` counts how often the position was moved back."""

    options: WorkOptions = WorkOptions()
    next_sequence: int | None = None
    unfinished: list[list[int]] = field(default_factory=list)
    rewinds: int = 0


def _name(name: str) -> str:
    return name + ".work"


def _temporary(name: str) -> str:
    """The name of a file that is being written. Copies of two subscribers are written at once, also by one process."""
    return f".{_name(name)}"


def _others(name: str) -> tuple[str, str]:
    return _temporary(name), f"{name}.reasons"


def path_of(path: str, name: str) -> str:
    return os.path.join(path, FOLDER, _name(name))


def read(path: str, meta: Meta, name: str) -> DurableCopy | None:
    """Reads the file; None where the subscriber was never shared. Of a copied file the options alone count."""
    file = path_of(path, name)
    try:
        text = read_small(file, BYTES_MAX)
        status = os.stat(file, follow_symlinks=False)
    except FileNotFoundError:
        return None
    first, newline, rest = text.partition(b"\n")
    second, _, lines = rest.partition(b"\n")
    body, begin = checked_body(first + newline + second, _FIRST_LINE, VERSION, file, "shared subscriber's file")
    try:
        fields = parse_json(body)
        copy = DurableCopy(_options(fields["options"]), rewinds=whole_number(fields, "rewinds", 0, NUMBER_MAX))
        with open(file, "rb") as opened:
            original = fields["inode"] == status.st_ino and fields["birth_us"] in (0, birth_us(opened.fileno()))
        if fields["uuid"] != meta.uuid.hex() or not original or fields["next_sequence"] is None:
            return copy
        following = whole_number(fields, "next_sequence", 0, NUMBER_MAX)
        unfinished = [_unfinished(*entry) for entry in fields["unfinished"]]
        return _changed(replace(copy, next_sequence=following, unfinished=unfinished), lines, file)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptJournal(file, begin, f"its content is not valid: {error}") from None


def read_options(path: str, name: str) -> WorkOptions:
    """Reads only the options, to show them. The list of unfinished records may be long: it is not read, so the checksum is not
    checked. If the options cannot be read, returns those with which a worker would open."""
    try:
        with open_file(path_of(path, name)) as opened:
            head = os.pread(opened.fd, HEAD_BYTES, 0).decode()
        _, mark, begin = head.partition('"options": ')
        return _options(json.JSONDecoder().raw_decode(begin)[0]) if mark else WorkOptions()
    except (OSError, JournalError, KeyError, TypeError, ValueError):
        return WorkOptions()


def _options(fields: dict[str, Any]) -> WorkOptions:
    return WorkOptions(**fields | {"backoff": tuple(fields["backoff"])})


def _unfinished(sequence: int, key_hash: int, attempts: int, failures: int | None = None) -> list[int]:
    """Returns an entry of `unfinished`. In version 1 each attempt but the last one was a failure."""
    return [int(sequence), int(key_hash), int(attempts), max(attempts - 1, 0) if failures is None else int(failures)]


def _changed(copy: DurableCopy, lines: bytes, file: str) -> DurableCopy:
    """Returns the copy with what the lines after it say."""
    following, unfinished = copy.next_sequence, {entry[0]: entry for entry in copy.unfinished}
    whole = lines.split(b"\n")[:-1]  # a power loss tears the last line only
    for index, line in enumerate(whole):
        crc, _, body = line.partition(b" ")
        if crc != b"%08x" % crc32c(body):
            if index < len(whole) - 1:
                warn(file, "records that were finished may come again", f"line {index + 3} has another checksum")
            break
        fields = parse_json(body)
        following = whole_number(fields, "next_sequence", 0, NUMBER_MAX)
        for sequence in fields["finished"]:
            unfinished.pop(sequence, None)
        unfinished |= {entry[0]: _unfinished(*entry) for entry in fields["unfinished"]}
    return replace(copy, next_sequence=following, unfinished=list(unfinished.values()))


def write(path: str, meta: Meta, name: str, copy: DurableCopy) -> File:
    """Replaces the file, durably and as a whole. Returns what append() needs to know of it."""
    fields = {"uuid": meta.uuid.hex(), **vars(copy), "options": asdict(copy.options)}  # asdict(copy) would copy each entry
    with Directory(path, FOLDER, make=True) as directory:
        with directory.made(_name(name), _temporary(name)) as fd:
            inode = os.fstat(fd).st_ino
            fields |= {"inode": inode, "birth_us": birth_us(fd)}
            body = json.dumps(fields).encode()
            text = b"jlog work %d crc32c=%08x\n%b\n" % (VERSION, crc32c(body), body)
            write_whole(fd, text, 0)
        sync_directory(directory.path)
    sync_directory(path)
    return inode, len(text), len(text)


def append(
    path: str, name: str, file: File, next_sequence: int, finished: list[int], unfinished: list[list[int]]
) -> File | None:
    """Durably appends a line with what has changed since the file was as `file` says. Returns how the file is then; None if it
    is another file or has become too long, and has to be replaced."""
    inode, copy_bytes, file_bytes = file
    if inode == 0 or file_bytes - copy_bytes > max(copy_bytes, LINES_BYTES_MIN):
        return None
    body = json.dumps({"next_sequence": next_sequence, "finished": finished, "unfinished": unfinished}).encode()
    line = b"%08x %b\n" % (crc32c(body), body)
    try:
        opened = open_file(path_of(path, name), os.O_WRONLY)
    except FileNotFoundError:
        return None
    with opened:
        status = os.fstat(opened.fd)
        if (status.st_ino, status.st_size) != (inode, file_bytes):
            return None
        write_whole(opened.fd, line, file_bytes)
        sync_data(opened.fd, path_of(path, name))
    return inode, copy_bytes, file_bytes + len(line)


def forget(path: str, meta: Meta, name: str) -> None:
    """Makes everything from the committed position on unfinished, durably, before that position is moved back. Called with the
    name held."""
    try:
        copy = read(path, meta, name)
    except CorruptJournal:
        copy = DurableCopy()
    if copy is not None:
        write(path, meta, name, DurableCopy(copy.options, rewinds=copy.rewinds + 1))
        with suppress(FileNotFoundError):
            os.unlink(window_path(path, name))


def remove(path: str, name: str) -> None:
    """Removes the files of a removed subscriber."""
    for file in (window_path(path, name), path_of(path, name), *(os.path.join(path, FOLDER, each) for each in _others(name))):
        with suppress(FileNotFoundError):
            os.unlink(file)


def copy_options(path: str, meta: Meta, target: str, names: Iterable[str]) -> None:
    """Gives a backup the options of the shared subscribers. In a copy everything from the committed position on comes again."""
    for name in names:
        with suppress(CorruptJournal):
            copy = read(path, meta, name)
            if copy is not None:
                write(target, meta, name, DurableCopy(copy.options))
