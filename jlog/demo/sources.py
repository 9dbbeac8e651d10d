"""The lines that the demo appends: read from files once, and cut into pieces that producers share."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Limits, so that a slow machine with two cores ends within a minute.
BYTES_MAX = 64 << 20
LINES_MAX = 1_000_000
PIECES = 16  # least number of pieces, if there are as many lines: enough for every producer


class NoInput(Exception):
    """There is no input, or none that can be read."""


@dataclass(frozen=True)
class InputPiece:
    """Lines that one producer appends under one key: a file, or a part of a file that is larger than others."""

    key: bytes
    offset: int
    size_bytes: int
    lines: int


@dataclass(frozen=True)
class Input:
    """The whole input in one file, so that files which change meanwhile, or can be read only once, are good input too."""

    path: str
    pieces: list[InputPiece]
    files: int
    lines: int
    size_bytes: int
    unreadable: int  # number of files
    is_cut: bool  # whether the input is larger than the demo takes


def take(inputs: list[str], path: str) -> Input:
    """Copies the input to `path`: at most BYTES_MAX and LINES_MAX of it."""
    contents: dict[str, bytes] = {}
    size_bytes = lines = unreadable = 0
    is_cut = False
    for name, file in _files(inputs):
        try:
            content, is_whole = _beginning(file, BYTES_MAX - size_bytes, LINES_MAX - lines)
        except OSError:
            unreadable += 1
            continue
        is_cut |= not is_whole
        if content and name not in contents:
            contents[name] = content
            size_bytes += len(content)
            lines += content.count(b"\n")
            if not is_whole:
                break
    if not lines:
        raise NoInput(f"no line of at most {BYTES_MAX >> 20} MiB in the input; name a text file, or a directory with some")
    pieces: list[InputPiece] = []
    with open(path, "wb") as copy:
        for name, content in contents.items():
            pieces += _cut(os.fsencode(name), content, copy.tell(), size_bytes // PIECES + 1)
            copy.write(content)
    return Input(path, pieces, len(contents), lines, size_bytes, unreadable, is_cut)


def _files(inputs: list[str]) -> Iterator[tuple[str, Path]]:
    """Yields name and path of every file of the input."""
    if not inputs:
        library = Path(sysconfig.get_path("stdlib"))
        for file in sorted(library.rglob("*.py")):
            name = file.relative_to(library)
            if not {"site-packages", "dist-packages"} & set(name.parts):
                yield str(name), file
        return
    for given in inputs:
        path = Path(given)
        if not path.exists():
            raise NoInput(f"{given}: no such file or directory")
        if not path.is_dir():
            yield given, path
            continue
        for directory, directories, names in os.walk(given):
            directories.sort()
            files = (Path(directory, name) for name in sorted(names))
            yield from ((str(file), file) for file in files if file.is_file())


def _beginning(path: Path, bytes_max: int, lines_max: int) -> tuple[bytes, bool]:
    """Returns whole lines from the beginning of a file, and whether these are all."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    is_whole = len(content) <= bytes_max
    if not is_whole:
        content = content[: content.rfind(b"\n", 0, bytes_max) + 1]
    elif content and not content.endswith(b"\n"):
        content += b"\n"
    if content.count(b"\n") > lines_max:
        is_whole = False
        content = b"".join(line + b"\n" for line in content.split(b"\n", lines_max)[:lines_max])
    return content, is_whole


def _cut(key: bytes, content: bytes, offset: int, piece_bytes: int) -> Iterator[InputPiece]:
    """Cuts the content at ends of lines into pieces of at least `piece_bytes`. The key of the second is key/part-2, a name that
    no file beside a file `key` can have."""
    begin, number = 0, 1
    while begin < len(content):
        end = content.find(b"\n", min(begin + piece_bytes, len(content)) - 1) + 1
        yield InputPiece(
            key if number == 1 else b"%s/part-%d" % (key, number),
            offset + begin,
            end - begin,
            content.count(b"\n", begin, end),
        )
        begin, number = end, number + 1


def share_out(pieces: Iterable[InputPiece], shares: int) -> list[list[InputPiece]]:
    """Shares the pieces out, with about as many lines in each share; the first has the most."""
    found: list[list[InputPiece]] = [[] for _ in range(shares)]
    lines = [0] * shares
    for piece in sorted(pieces, key=lambda piece: (-piece.lines, piece.offset)):
        least = lines.index(min(lines))
        found[least].append(piece)
        lines[least] += piece.lines
    ordered = sorted(zip(lines, found, strict=True), key=lambda share: -share[0])
    return [sorted(share, key=lambda piece: piece.offset) for _, share in ordered]


def lines_of(path: str, piece: InputPiece) -> list[bytes]:
    with open(path, "rb") as file:
        file.seek(piece.offset)
        return file.read(piece.size_bytes)[:-1].split(b"\n")


def chain(digest: bytes, line: bytes) -> bytes:
    """Returns the digest of all lines up to this one, from that of the lines before it. It is equal only for the same lines in
    the same order. Unlike a running sha256 it can be written to a file, and continued by another process."""
    return hashlib.sha256(digest + line).digest()


def digest_of(lines: Iterable[bytes]) -> bytes:
    digest = b""
    for line in lines:
        digest = chain(digest, line)
    return digest
