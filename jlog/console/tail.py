"""The new records of a journal, as they come, read in a process of its own (isolation.py)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jlog.console.isolation import serve
from jlog.console.records import BATCH_BYTES, row_of
from jlog.urls import open_journal, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET_SECONDS = 15.0  # after which a connection without records is tried, so that one which is gone is noticed
LOOK_SECONDS = 0.25  # between two events: a browser shows no more
RECORDS = 200  # of an event: of more, the newest


def new_rows(path: str) -> Iterator[list[tuple[str | None, ...]]]:
    """Yields the rows of new records as they come, without what is folded, and an empty list, QUIET_SECONDS apart, while none
    come."""
    journal = open_journal(path)
    with open_reader(path, start="end") as reader:
        yield []
        while True:
            found = [row_of(record, record.value) for record in reader.read(1, 1, QUIET_SECONDS)]
            if found:
                end = journal.next_sequence
                if end - reader.position > RECORDS:
                    reader.seek(end - RECORDS)
                found += [row_of(record, record.value) for record in reader.read(RECORDS, BATCH_BYTES)]
            yield [row[:-1] for row in found]
            time.sleep(LOOK_SECONDS if found else 0)


if __name__ == "__main__":
    serve(new_rows)
