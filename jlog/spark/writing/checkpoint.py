"""Reads from Spark's checkpoint where the sources of a batch begin and end, if it is in a directory that this process sees."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from jlog.spark.offset_log import digest_of
from jlog.spark.syncing import sync

NOTE = "jlog-sink"  # a file beside Spark's own


@dataclass(frozen=True)
class Content:
    """The content of a batch. offsets: a digest of where its sources begin and end; offsets_file: a digest of the file that
    says so, which Spark writes once for a batch, with the time. Both are None where the checkpoint cannot be read."""

    records: int
    offsets: str | None = None
    offsets_file: str | None = None


def content_of(records: int, location: str | None, batch: int) -> Content:
    """Returns what the checkpoint at `location` says of a batch. It is synced first, so that a power loss does not take from
    the checkpoint what others note of the batch afterwards."""
    root = _directory(location)
    if root is None:
        return Content(records)
    try:
        end = _text(root, batch)
    except (FileNotFoundError, NotADirectoryError):
        return Content(records)  # it is on another file system, though its path does not say so
    begin = None
    with suppress(FileNotFoundError):
        begin = _text(root, batch - 1)
    try:
        offsets = digest_of(begin, end)
    except ValueError:  # a format of a later Spark
        return Content(records)
    sync(_files_of(root, batch), missing_ok=True)  # Spark may be told to write no checksums
    return Content(records, offsets, hashlib.sha256(end.encode()).hexdigest()[:16])


def noted(location: str | None) -> int | None:
    """Returns the last batch that the query has appended to its journal, as note() has stored it; None where it has not."""
    root = _directory(location)
    try:
        with open(os.path.join(root or "", NOTE), encoding="utf-8") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def note(location: str | None, batch: int) -> None:
    """Stores in the checkpoint, if that is in a directory that this process sees, that the journal has this batch."""
    root = _directory(location)
    if root is not None and os.path.isdir(root):
        new, path = (os.path.join(root, name) for name in (f".{NOTE}", NOTE))
        with open(new, "w", encoding="utf-8") as file:
            file.write(str(batch))
        sync([new])
        os.replace(new, path)
        sync([root])


def _directory(location: str | None) -> str | None:
    """Returns the path of a checkpoint on this machine. As in Hadoop, no character of it is escaped."""
    if location is None:
        return None
    scheme, colon, path = location.partition(":")
    if not colon or "/" in scheme:
        return os.path.abspath(location)
    if scheme.lower() != "file":
        return None
    return "/" + path.lstrip("/")


def _text(root: str, batch: int) -> str:
    with open(os.path.join(root, "offsets", str(batch)), encoding="utf-8") as file:
        return file.read()


def _files_of(root: str, batch: int) -> Iterable[str]:
    """Yields what has to be on the disk so that Spark finds this batch, and the same query, after a power loss."""
    offsets = os.path.join(root, "offsets")
    yield from (os.path.join(offsets, name) for name in (str(batch), f".{batch}.crc"))
    yield offsets
    if batch == 0:
        yield from (os.path.join(root, name) for name in ("metadata", ".metadata.crc"))
        yield root
        yield os.path.dirname(root)
