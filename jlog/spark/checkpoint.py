"""The files of a Spark checkpoint: `offsets/N` says where each source of a query stands at the end of batch N.

Spark writes the file of a batch before the batch runs. A batch that is run again has the same file. So the file tells whether
two batches with one number are the same batch.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass

from jlog.system.files import sync_files

NUMBERED_SOURCES = "v1"  # the format in which a source is known by the number of its line; later ones name each source
NOTE = "jlog-sink"  # a file beside Spark's own


def digest_of(begin: str | None, end: str) -> str:
    """Returns a digest, 32 hexadecimal digits, of the records that a batch is made of. end: the text of the batch's own file;
    begin: that of the batch before, None for the first batch. Spark's settings and the time, which stand in the file too, do
    not count. Raises ValueError for another text."""
    digest = hashlib.sha256()
    for text in (begin, end):
        lines = [] if text is None else offsets_in(text)
        digest.update(f"{len(lines)}\n".encode())
        for line in lines:
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:32]


def offsets_in(text: str) -> list[str]:
    """Returns the lines after the version and the metadata, one for each source. Raises ValueError for another text."""
    version, *lines = text.rstrip("\n").split("\n")
    if not version.startswith("v") or len(lines) < 2:
        raise ValueError(f"this is not an offset file of Spark, since it has no line for a source: {text[:100]!r}")
    return lines[1:] if version == NUMBERED_SOURCES else sorted(lines[1:])


def files_of(root: str, batch: int) -> list[str]:
    """Returns the files that have to be on the disk so that Spark finds this batch, and the same query, after a power loss.
    Spark may be told to write no checksums."""
    found = [f"{root}/offsets/{batch}", f"{root}/offsets/.{batch}.crc"]
    return [*found, f"{root}/metadata", f"{root}/.metadata.crc"] if batch == 0 else found


# --- The sink's batches -------------------------------------------------------------------------------------------------


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
    folders = [f"{root}/offsets", *([root, os.path.dirname(root)] if batch == 0 else [])]
    sync_files([*files_of(root, batch), *folders], missing_ok=True)
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
        sync_files([new])
        os.replace(new, path)
        sync_files([root])


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
