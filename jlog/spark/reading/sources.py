"""Finds what to read: journals, journals below a root, and archives by their URLs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

from jlog.archive import archive_of
from jlog.errors import JournalNotFound
from jlog.spark.reading.options import Bound, Bounds, ReadOptions
from jlog.spark.reading.spark_archive import SparkArchive
from jlog.spark.reading.spark_journal import SparkJournal
from jlog.storage.meta import journals_below
from jlog.system.filesystem import is_url
from jlog.urls import ArchivePlace, Place, place_of

SparkSource = SparkJournal | SparkArchive


def sources_of(options: ReadOptions) -> dict[str, SparkSource]:
    """Returns the journals by name. Raises JournalNotFound where there is none."""
    found: dict[str, SparkSource] = {}
    for name, path in _named(options):
        if name in found:
            raise ValueError(f"{name} is named twice")
        found[name] = _source(name, path, options.archive)
    if not found:
        assert options.pattern is not None
        raise JournalNotFound(
            f"no journal below {', '.join(options.paths)} has a path that {options.pattern.pattern!r}, a regular expression, "
            f"matches as a whole; {_what_is_below(options.paths[0])}",
            options.paths[0],
        )
    return found


def _named(options: ReadOptions) -> Iterator[tuple[str, str]]:
    for given in options.paths:
        root = _place(given)
        if root.is_archive and options.pattern is not None:
            raise ValueError(f"journalPattern looks for journals below a directory, and {given} is an archive")
        if not options.journals and options.pattern is None:
            yield root, root
        for name in options.journals:
            yield (name if len(options.paths) == 1 else os.path.join(root, name)), os.path.join(root, name)
        if options.pattern is not None:
            for path in journals_below(root) if os.path.isdir(root) and os.access(root, os.R_OK | os.X_OK) else ():
                name = os.path.relpath(path, root)
                if options.pattern.fullmatch(name):
                    yield (name if len(options.paths) == 1 else path), path


def _place(text: str) -> Place:
    """Returns the journal, the archive or the root of journals. A file: URL where no journal is names an archive, which may be
    empty as yet."""
    place = place_of(text)
    if place.is_topic:
        raise ValueError(f"{text} is a topic, which Spark reads with format('kafka'); this source reads journals and archives")
    if place.is_archive or (is_url(text) and not _is_journal(place)):
        return ArchivePlace((place if place.is_archive else text).rstrip("/"))
    return Place(os.path.abspath(place))


def _is_journal(path: str) -> bool:
    return os.path.exists(os.path.join(path, "journal.meta"))


def _source(name: str, path: str, archive: bool | str) -> SparkSource:
    if is_url(path):
        return SparkArchive(name, path)
    if not _is_journal(path):
        raise JournalNotFound(
            f"there is no journal at {path} on {socket.gethostname()}, where Spark's driver runs; {_what_is_below(path)}", path
        )
    known = archive if archive is not True else archive_of(path, True) is not None
    return SparkJournal(name, path, known)


def _what_is_below(path: str) -> str:
    if not os.path.isdir(path):
        return "there is no such directory"
    try:
        names = [os.path.relpath(journal, path) for journal, _ in zip(journals_below(path), range(6), strict=False)]
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if not names:
        return "there is none below it either"
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"below it are {shown}: name them with the option journals or journalPattern"


def bound_of(bounds: Bounds | None, name: str, default: Bound) -> Bound:
    if isinstance(bounds, dict):
        return bounds.get(name, default)
    return default if bounds is None else bounds


def check_names(bounds: Bounds | None, sources: Mapping[str, SparkSource]) -> None:
    """Raises ValueError where the JSON of a starting or ending bound names a journal that is not read."""
    unknown = sorted(set(bounds) - set(sources)) if isinstance(bounds, dict) else []
    if unknown:
        raise ValueError(
            f"a position is given for {', '.join(unknown)}, which is not read; these are read: {', '.join(sorted(sources))}"
        )
