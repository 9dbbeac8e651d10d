"""The lines that the demo appends, read from files once."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Limits, so that a slow machine with two cores ends within a minute.
BYTES_MAX = 64 << 20
LINES_MAX = 1_000_000


class NoInput(Exception):
    """There is no input, or none that can be read."""


@dataclass(frozen=True)
class Input:
    """The whole input in one file, so that files which change meanwhile, or can be read only once, are good input too."""

    path: str
    files: dict[bytes, int]  # the number of lines of each file, by its name
    size_bytes: int
    unreadable: int  # number of files
    is_cut: bool  # whether the input is larger than the demo takes

    @property
    def lines(self) -> int:
        return sum(self.files.values())

    def part(self, begin: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        """Yields the lines from number `begin` to before `end`, counted from 0, each with the name of its file."""
        names = chain.from_iterable(repeat(name, lines) for name, lines in self.files.items())
        with open(self.path, "rb") as file:
            for name, line in islice(zip(names, file, strict=True), begin, end):
                yield name, line[:-1]


def take(inputs: list[str], path: str) -> Input:
    """Copies the input to `path`: at most BYTES_MAX and LINES_MAX of it."""
    files: dict[bytes, int] = {}
    left, unreadable, is_whole = LINES_MAX, 0, True
    with open(path, "wb") as copy:
        for name, file in _files(inputs):
            try:
                lines, is_whole = _beginning(file, BYTES_MAX - copy.tell(), left)
            except OSError:
                unreadable += 1
                continue
            if lines and os.fsencode(name) not in files:
                files[os.fsencode(name)] = len(lines)
                left -= len(lines)
                copy.writelines(line + b"\n" for line in lines)
            if not is_whole:
                break
        size_bytes = copy.tell()
    if not files:
        raise NoInput(f"no line of at most {BYTES_MAX >> 20} MiB in the input; name a text file, or a directory with some")
    return Input(path, files, size_bytes, unreadable, not is_whole)


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
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from ((str(file), file) for file in files if not file.is_dir())


def _beginning(path: Path, bytes_max: int, lines_max: int) -> tuple[list[bytes], bool]:
    """Returns whole lines from the beginning of a file, and whether these are all."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    lines = content.split(b"\n")
    is_cut = len(content) > bytes_max
    if is_cut or not lines[-1]:
        lines.pop()
    return lines[:lines_max], not is_cut and len(lines) <= lines_max
