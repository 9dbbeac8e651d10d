"""Takes orders. One transaction of the database writes an order and its event, so there is never one without the other."""

from __future__ import annotations

import json
import sqlite3

# AUTOINCREMENT: the id of a row that was deleted is never given to another row. The relay relies on it.
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, event TEXT NOT NULL);
"""


def open_database(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=60)
    database.execute("PRAGMA journal_mode = WAL")  # the relay reads while shops write
    database.execute("PRAGMA synchronous = FULL")
    database.executescript(SCHEMA)
    return database


def take_order(database: sqlite3.Connection, customer: str, cents: int) -> None:
    with database:  # one transaction: it commits at the end, and rolls back if anything is raised
        row = database.execute("INSERT INTO orders (customer, cents) VALUES (?, ?)", (customer, cents))
        put_event(database, customer, {"order": row.lastrowid, "customer": customer, "cents": cents})


def put_event(database: sqlite3.Connection, key: str, event: dict[str, object]) -> None:
    database.execute("INSERT INTO outbox (key, event) VALUES (?, ?)", (key, json.dumps(event)))
