"""Runs shops and relays, kills them at the worst moments, and proves that each order is in the journal exactly once.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from multiprocessing import Process
from typing import Any

import jlog
import relay
import shop

SHOPS = ("ann", "bob", "cy")
ORDERS = 200
FATAL_ORDER = 100  # cy's shop is killed when it takes this order
KILLED_RELAYS = 4


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_shop(database_path: str, customer: str) -> None:
    with closing(shop.open_database(database_path)) as database:
        for number in range(ORDERS):
            if (customer, number) == ("cy", FATAL_ORDER):
                shop.put_event = die  # the order is in the transaction, its event is not
            shop.take_order(database, customer, 100 + number)


def run_doomed_relay(database_path: str, journal_path: str) -> None:
    """Runs a relay that is killed when its first batch is in the journal, and still in the outbox."""
    delete_rows = relay.delete_rows

    def delete_once(database: sqlite3.Connection, ids: Iterable[int]) -> None:
        delete_rows(database, ids)
        relay.delete_rows = die

    relay.delete_rows = delete_once  # the first call cleans up after the relay before
    relay.relay(database_path, journal_path)


def run_all(database_path: str, journal_path: str) -> None:
    shop.open_database(database_path).close()
    shops = [Process(target=run_shop, args=(database_path, customer)) for customer in SHOPS]
    for process in shops:
        process.start()
    print(f"{len(SHOPS)} shops take {ORDERS} orders each; one is killed between an order and its event")
    for number in range(KILLED_RELAYS):
        doomed = Process(target=run_doomed_relay, args=(database_path, journal_path))
        doomed.start()
        doomed.join()
        check(doomed.exitcode == -signal.SIGKILL, f"relay {number} ended with {doomed.exitcode}")
        print(f"relay {number} was killed after its append: {len(jlog.Journal(journal_path))} events in the journal")
    for process in shops:
        process.join()
    check([process.exitcode for process in shops] == [0, 0, -signal.SIGKILL], "a shop did not end as planned")
    relay.relay(database_path, journal_path, until_empty=True)
    print("the last relay has emptied the outbox")


def prove(database_path: str, journal_path: str) -> None:
    with closing(shop.open_database(database_path)) as database:
        orders = [order for (order,) in database.execute("SELECT id FROM orders ORDER BY id")]
        (left,) = database.execute("SELECT count(*) FROM outbox").fetchone()
    with jlog.Reader(journal_path) as reader:
        events = [json.loads(record.value or b"")["order"] for record in reader]
    print(f"{len(orders)} orders in the database, {len(events)} events in the journal, {left} in the outbox")
    check(len(orders) == (len(SHOPS) - 1) * ORDERS + FATAL_ORDER, "the database has lost orders")
    check(left == 0, "the outbox is not empty")
    check(events == orders, "the journal does not have each order once and in order")
    print("each order is in the journal exactly once, in the order of the database")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def main(folder: str) -> None:
    database_path, journal_path = os.path.join(folder, "shop.db"), os.path.join(folder, "events")
    run_all(database_path, journal_path)
    prove(database_path, journal_path)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
