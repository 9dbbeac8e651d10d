"""Decides which instance of a mirror is the newest. Each writes a claim to the mirror's table before it fences the others."""

from __future__ import annotations

import os
import secrets
import socket
import time

from jlog.errors import JournalError
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.errors import Fenced
from jlog.kafka.client.table import read_table, write_row

OWNER = "owner"  # row of the table that says which instance writes


class Claims:
    """The claims of one mirror, in its table. The last one in the topic counts: the table has one partition, so its brokers put
    them in order.

    A claim is not part of a transaction. The open transaction of an earlier instance hides it from readers of committed
    records. So claims are read together with uncommitted records.
    """

    def __init__(self, cluster: Cluster, table: str, where: str) -> None:
        self._cluster = cluster
        self._table = table
        self._where = where
        self._instance = secrets.token_hex(8)
        self._has_claimed = False
        self._heard = 0  # end of the part of the table in which follow() has looked

    def claim(self) -> None:
        """Writes a claim, at the first call. Raises Fenced at a later one if another instance has written one since."""
        if self._has_claimed:
            self.check()
            return
        claim = {"instance": self._instance, "host": socket.gethostname(), "pid": os.getpid(), "since": int(time.time())}
        write_row(self._cluster, self._table, OWNER, claim, f"claiming table {self._table}")
        self._has_claimed = True

    def check(self, begin: int = 0) -> None:
        """Raises Fenced if the last claim, from this offset of the table on, is that of another instance."""
        found = self.newer(begin)
        if found is not None:
            raise found

    def follow(self, end: int) -> None:
        """Raises Fenced if another instance has written a claim. end: of the table now. Reads only what is new since the last
        call."""
        if end > self._heard:
            self.check(self._heard)
            self._heard = end

    def newer(self, begin: int = 0) -> JournalError | None:
        """Returns the error that says which other instance has written the last claim, from this offset of the table on; None
        where there is none, or it is this one's."""
        owner = read_table(self._cluster, self._table, committed=False, begin=begin).get(OWNER, {})
        if owner.get("instance", self._instance) == self._instance:
            return None
        return Fenced(
            f"another mirror to {self._where} has taken over (process {owner.get('pid')} on {owner.get('host')}); this one "
            f"ends, and has lost nothing"
        )
