"""The subscriber of a streaming query in each of its journals, which holds back the records that the query has not
committed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import jlog
from jlog.errors import JournalError, PositionLost, SubscriberBusy, SubscriberExists
from jlog.options import retention_of
from jlog.positions.position_files import SUBSCRIBER, PositionFile
from jlog.positions.query_owners import BEGINNING_BYTE, owner_of
from jlog.positions.query_owners import claim as claim_for
from jlog.spark.reading.ends import AT_ONCE
from jlog.spark.reading.sources import SparkSource
from jlog.storage.meta import read_meta
from jlog.system.files import sync_files

logger: logging.Logger = logging.getLogger("jlog.spark")


class Subscription:
    """Holds the name only while it moves the subscriber, so that a query that is started anew never finds it busy."""

    def __init__(self, name: str | None, checkpoint: str | None = None, *, fail_on_data_loss: bool = True) -> None:
        """checkpoint: the query's, where that is a directory that this process sees."""
        self._name = name
        self._fail_on_data_loss = fail_on_data_loss
        self._checkpoint = checkpoint
        self._moved: dict[str, int] = {}
        self._first_in: list[str] = []  # journals that had no subscriber before, and are not logged yet
        self._beginning: dict[str, PositionFile] = {}  # by journal, while the subscriber has no owner

    def position(self, source: SparkSource) -> int | None:
        """Returns its position; None where it does not exist."""
        if self._name is None:
            return None
        found = jlog.Journal(source.path).subscribers().get(self._name)
        return None if found is None else found.sequence

    def create(self, source: SparkSource, sequence: int) -> None:
        """Creates the subscriber at this sequence, if there is none."""
        if self._name is None or self.position(source) is not None:
            return
        journal = jlog.Journal(source.path)
        is_first = not journal.subscribers() and retention_of(read_meta(source.path).options).delete_read
        with suppress(SubscriberExists):  # another process has created it in the meantime
            journal.add_subscriber(self._name, sequence)
            if is_first:
                self._first_in.append(source.name)

    def begin(self, source: SparkSource, query: str | None) -> None:
        """Keeps other queries from beginning with the subscriber until it belongs to this one, or this process ends. Raises
        JournalError where it is another query's, or another one begins with it. The query's checkpoint does not name the query
        yet. If an owner were stored now, and the query were killed before its checkpoint names it, the query would be refused
        when it begins anew."""
        self.check_owner(source, query)
        if self._name is None or source.name in self._beginning or owner_of(source.path, self._name) is not None:
            return
        file = PositionFile(source.path, read_meta(source.path), SUBSCRIBER, self._name)
        if file.lock_file.acquire(BEGINNING_BYTE, timeout=0):
            self._beginning[source.name] = file
            return
        file.close()
        self._refuse(
            f"{source.path}: another query has begun with the subscriber {self._name}, and reads its first batch",
            "Give each query a subscriber of its own",
        )

    def end(self) -> None:
        """Lets other queries begin with the subscriber, if it does not belong to this one by now."""
        for file in self._beginning.values():
            file.close()
        self._beginning.clear()

    def log_first(self) -> None:
        """Logs once that the retention of these journals begins to remove segments: a journal without subscribers keeps
        everything."""
        if not self._first_in:
            return
        shown = ", ".join(self._first_in[:3]) + (f" and {more} more" if (more := len(self._first_in) - 3) > 0 else "")
        logger.warning(
            "%s: %s is the first subscriber, created for this query. Until now the journal has kept all records; from now on "
            "retention removes segments that all subscribers and checkpoints have passed. To keep them, set "
            "jlog.Retention(delete_read=False)",
            shown, self._name,
        )  # fmt: skip
        self._first_in.clear()

    def move(self, positions: Iterable[tuple[SparkSource, int]], query: str | None, *, claim: bool = False) -> None:
        """Moves the subscriber of each journal, only forward, after one sync of the checkpoint, and several at once: each takes
        a sync of its own. query: the id of the query, which another one's subscriber is compared with; None: not known yet.
        claim: the checkpoint contains that id, so that a subscriber without an owner is the query's from now on."""
        due = [(source, sequence) for source, sequence in positions if self._moved.get(source.name, -1) < sequence]
        if self._name is None or not due:
            return
        self._sync_checkpoint()
        with ThreadPoolExecutor(min(AT_ONCE, len(due))) as pool:
            list(pool.map(lambda pair: self._move(pair[0], pair[1], query, claim), due))

    def _move(self, source: SparkSource, sequence: int, query: str | None, claim: bool) -> None:
        """Moves one. A process that holds the name just now keeps it: a later commit moves it as far. Raises JournalError where
        it belongs to another query, or something else has moved it further than the query is."""
        assert self._name is not None
        if source.name not in self._moved:
            self.create(source, sequence)
        self.check_owner(source, query, claim)
        try:
            with jlog.Reader(source.path, self._name, start=sequence) as reader:
                stands = reader.committed
                if sequence > stands:
                    reader.commit(sequence, durable=True)
        except SubscriberBusy as error:
            logger.warning("%s; it is not moved to %d by this commit", error, sequence)
            return
        self._check_ahead(source, sequence, stands)
        self._moved[source.name] = sequence

    def explained(self, source: SparkSource, sequence: int, query: str | None, error: PositionLost) -> PositionLost:
        """Returns the error for a query whose records from this sequence on are gone. Raises JournalError where the subscriber
        is another query's, or stands further than that."""
        if self._name is None:
            return error
        self.check_owner(source, query)
        self._check_ahead(source, sequence, self.position(source) or 0)
        return PositionLost(
            f"{source.path}: the records from {sequence} to {error.first_sequence - 1} are gone, though the subscriber "
            f"{self._name} has not passed them: it had expired (subscriber_max_age), or the journal's limits take unread "
            "records too (drop_unread). Change that with jlogtool options, and archive what a query may need. The option "
            f"failOnDataLoss=false goes on at {error.first_sequence}",
            error.first_sequence,
        )

    def check_owner(self, source: SparkSource, query: str | None, claim: bool = False) -> None:
        """Raises JournalError where the subscriber is another query's. claim: see move()."""
        if self._name is None:
            return
        owner = owner_of(source.path, self._name)
        if owner is None and claim and query is not None:
            owner = claim_for(source.path, self._name, query, self._checkpoint)
            if source.name in self._beginning:
                self._beginning.pop(source.name).close()
        if owner is None or query is None or owner.query == query:
            return
        told = f"{source.path}: the subscriber {self._name} belongs to {owner}, and this is the query {query[:8]}"
        self._refuse(
            f"{told}. With one subscriber for both, records are removed that one of them has not read",
            "Give each query a subscriber of its own. If the other one has ended for good, take over its subscriber: jlogtool "
            f"subscriber set {source.path} {self._name} {self.position(source)}",
        )

    def _check_ahead(self, source: SparkSource, sequence: int, stands: int) -> None:
        """The query itself moves its subscriber only to where its checkpoint is. So one that is ahead is not the query's
        alone, and holds back too little for it."""
        if stands <= sequence:
            return
        self._refuse(
            f"{source.path}: the subscriber {self._name} stands at {stands}, ahead of this query at {sequence}. Another query, "
            "pipeline or program moves a subscriber of this name, or the query's checkpoint is an older copy. The records "
            "between them are not held back for this query any more",
            "Give each query a subscriber of its own, or bring the newest checkpoint back. If nothing else uses "
            f"it: jlogtool subscriber set {source.path} {self._name} {sequence}",
        )

    def _refuse(self, told: str, way_out: str) -> None:
        if self._fail_on_data_loss:
            raise JournalError(f"{told}. {way_out}")
        logger.warning("%s", told)

    def _sync_checkpoint(self) -> None:
        """Syncs the newest files of the checkpoint, which Spark itself does not do. Otherwise, after a power loss, it may
        repeat a batch whose records retention has removed since."""
        for name in ("offsets", "commits"):
            folder = os.path.join(self._checkpoint or "", name)
            if self._checkpoint is None or not os.path.isdir(folder):
                continue
            newest = max((int(one) for one in os.listdir(folder) if one.isdecimal()), default=0)
            paths = [os.path.join(folder, name) for name in (str(newest), f".{newest}.crc")]
            sync_files([*paths, folder], missing_ok=True)
