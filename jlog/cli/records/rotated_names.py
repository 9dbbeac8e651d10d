"""The names that rotated files of a log file have."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import IntEnum

_WORDS = (
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|january|february|march|april|june|july|august|september|october|november|"
    "december|mon|tue|wed|thu|fri|sat|sun|am|pm|utc|gmt|z|t|w|h|old|bak|backup|prev|previous|orig|save|saved|rotated|archive|log|txt"
)
_ROTATION = re.compile(rf"(?:[._:+@~,\s-]|\d|(?<![a-z])(?:{_WORDS})(?![a-z]))*", re.IGNORECASE)
_DATE = re.compile(r"[._-]*\d{4}[._-]?\d\d")
_MOVES_ON = re.compile(
    r"\d{4}[._-]?\d\d|^\d+\."
)  # the name of a file that a link leads to, until the next: app-2026-11-28.log, 0.log
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|lzma|zip|Z)$")
_UNFINISHED = re.compile(r"\.(?:tmp|part|swp)$")


class NameKind(IntEnum):
    PATH = 0
    ROTATED = 1
    COMPRESSED = 2  # a rotated file that was compressed
    SIMILAR = 3  # the log's name is in it, with more than a number, a date or the like
    OTHER = 4


Parts = tuple[str, str]  # what stands in a rotated file's name after the log's name, and what stands before its ending
NameKindOf = Callable[[str], tuple[NameKind, Parts]]


def paths_of(path: str) -> list[str]:
    """Returns the path, and each one that a symbolic link there leads to."""
    paths = [path]
    while os.path.islink(paths[-1]) and len(paths) < 40:
        paths.append(os.path.join(os.path.dirname(paths[-1]), os.readlink(paths[-1])))
    real = os.path.realpath(path)
    return paths if real in paths else [*paths, real]


def names_beside(path: str, *, is_target: bool) -> NameKindOf:
    """Returns a function that judges a name in the directory of `path`. is_target: a link led to this file."""
    stem, ending = os.path.splitext(os.path.basename(path))
    moves_on = is_target and _MOVES_ON.search(stem + ending) is not None
    pattern = re.compile(re.sub(r"\d+", r"\\d+", re.escape(stem)) if moves_on else re.escape(stem))

    def kind_of(name: str) -> tuple[NameKind, Parts]:
        plain = _COMPRESSED.sub("", name)
        match = pattern.search(plain)
        if match is None or _UNFINISHED.search(plain):
            return NameKind.OTHER, ("", "")
        before, within, after = plain[: match.start()], "", plain[match.end() :]
        if after.startswith(ending) and not after[len(ending) :][:1].isalpha():
            after = after.removeprefix(ending)
        elif ending and after.endswith(ending):
            within, after = after.removesuffix(ending), ""
        is_apart = not before[-1:].isalnum() and not (after or within)[:1].isalpha()
        if not is_apart or not all(map(_ROTATION.fullmatch, (before, within, after))):
            return NameKind.SIMILAR, ("", "")
        if moves_on:  # the date is within the log's name
            within = match[0] + within
        return NameKind.ROTATED if plain == name else NameKind.COMPRESSED, (after, within)

    return kind_of


def plain_name(name: str) -> str:
    """Returns what a compressed file was called before."""
    return _COMPRESSED.sub("", name)


def has_date(parts: Parts) -> bool:
    return _DATE.search("".join(parts)) is not None


def numbers_of(parts: Parts, *, is_date: bool) -> list[int]:
    """Returns a key that sorts names, oldest first: app.log.1 is newer than app.log.2, app-1.log is older than app-2.log."""
    after, within = (_numbers(part) for part in parts)
    return after + within if is_date else [-number for number in after] or within


def _numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", text)]
