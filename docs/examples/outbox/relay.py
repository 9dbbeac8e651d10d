"""Moves the events of the outbox into a journal, each exactly once: `python relay.py DATABASE JOURNAL`.

The journal's state keeps the ids of the newest batch. The ids are stored by the same append as the events: both are there, or
neither is. A relay that starts deletes these rows first. They are in the journal already, and the relay before it may have been
killed before it could delete them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterable
from contextlib import closing

import jlog
from shop import open_database

STATE_KEY = b"outbox"
BATCH_ROWS = 100  # their ids must fit into the journal's state, which has 64 KiB
POLL_SECONDS = 0.05


def relay(database_path: str, journal_path: str, *, until_empty: bool = False) -> None:
    # exclusive: a second relay gets JournalLocked. The kernel frees the lock when this one dies.
    with closing(open_database(database_path)) as database, jlog.Writer(journal_path, exclusive=True) as writer:
        delete_rows(database, json.loads(jlog.Journal(journal_path).state().get(STATE_KEY, b"[]")))
        while True:
            if move_batch(database, writer) == 0:
                if until_empty:
                    return
                time.sleep(POLL_SECONDS)


def move_batch(database: sqlite3.Connection, writer: jlog.Writer) -> int:
    """Moves the oldest rows of the outbox, and returns their number."""
    rows = database.execute("SELECT id, key, event FROM outbox ORDER BY id LIMIT ?", (BATCH_ROWS,)).fetchall()
    if rows:
        ids = [row_id for row_id, _, _ in rows]
        writer.extend(
            [event.encode() for _, _, event in rows],
            keys=[key.encode() for _, key, _ in rows],
            state={STATE_KEY: json.dumps(ids).encode()},
        )
        writer.sync()  # the database forgets these rows now, so the journal must keep them through a power loss
        delete_rows(database, ids)
    return len(rows)


def delete_rows(database: sqlite3.Connection, ids: Iterable[int]) -> None:
    with database:
        database.executemany("DELETE FROM outbox WHERE id = ?", [(row_id,) for row_id in ids])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python relay.py DATABASE JOURNAL")
    relay(sys.argv[1], sys.argv[2])
