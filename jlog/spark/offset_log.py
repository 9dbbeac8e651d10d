"""The files `offsets/N` of a Spark checkpoint: where each source of a query stands at the end of batch N.

Spark writes the file of a batch before the batch runs. A batch that is run again has the same file. So the file tells whether
two batches with one number are the same batch.
"""

from __future__ import annotations

import hashlib

NUMBERED_SOURCES = "v1"  # the format in which a source is known by the number of its line; later ones name each source


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
