"""One partition of one topic, the counterpart of a journal's directory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jlog.errors import CheckpointNotFound, JournalClosed, PositionLost
from jlog.kafka.client.cluster import Cluster, Topic, check_same
from jlog.kafka.client.errors import TopicChanged
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.table import ensure_table, read_table, write_row
from jlog.kafka.client.url import TopicUrl, parse
from jlog.positions.names import Start, check_name, resolved, timestamp_us_of

if TYPE_CHECKING:
    from typing_extensions import Self
ANEW = "Open it again, and set its subscribers (`jlogtool subscriber set`)"


class Checkpoint(NamedTuple):
    offset: int
    moved_us: int


class Partition:
    """The partition that `url` names. Raises ValueError where the topic has several partitions and the URL names none, or
    one that does not exist, and JournalNotFound where there is no such topic. With `making` (see Cluster.ensure) the topic
    is made."""

    def __init__(
        self,
        url: str,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        making: Mapping[str, Any] | None = None,
    ) -> None:
        self._at = parse(url)
        self.settings: Settings = Settings(self._at, config, config_file)
        self.cluster: Cluster = Cluster(self.settings)
        name = self._at.topic
        self.cluster.check(name)
        self.topic: Topic = self.cluster.topic(name) if making is None else self.cluster.ensure(name, **making)[0]
        self.number: int = _number_of(self._at, self.topic)

    @property
    def url(self) -> str:
        return str(self._at)

    @property
    def name(self) -> str:
        return self.topic.name

    def first(self) -> int:
        return self.cluster.first_offsets(self.topic, [self.number])[self.number]

    def end(self) -> int:
        return self.cluster.end_offsets(self.topic, [self.number])[self.number]

    def check_same(self) -> None:
        """Raises TopicChanged where the topic was deleted, or created again."""
        check_same(self.url, self.cluster.find(self.name), self.topic.id, ANEW)

    def changed(self) -> TopicChanged:
        return TopicChanged.created_again(self.url, ANEW)

    # --- Positions --------------------------------------------------------------------------------------------------

    def find(self, start: Start, *, checkpoints: bool = True) -> int:
        """Returns an offset. Raises ValueError for a start that is not a position, or one beyond the end, and
        CheckpointNotFound for a name that no checkpoint has."""
        start = resolved(start)
        if start == "begin":
            return self.first()
        if start == "end":
            return self.end()
        if isinstance(start, datetime):
            at = self.cluster.offsets_at(self.topic, timestamp_us_of(start), [self.number])
            return at[self.number]
        if isinstance(start, str):
            if not checkpoints:
                raise ValueError(
                    f"seek goes to 'begin', 'end', an offset or an aware datetime, not {start!r}; rewind() goes to a checkpoint"
                )
            return self.checkpoint(start)
        if start < 0:
            raise ValueError(f"an offset must be 0 or more, not {start}")
        end = self.end()
        if start > end:
            raise ValueError(f"{self.url} ends at offset {end}; {start} is beyond it")
        return start

    def checkpoint(self, name: str) -> int:
        check_name(name, "checkpoint")
        there = self.checkpoints()
        if name not in there:
            raise CheckpointNotFound(f"{self.url} has no checkpoint {name!r}; there: {', '.join(sorted(there)) or 'none'}")
        return there[name].offset

    def checkpoints(self) -> dict[str, Checkpoint]:
        """Returns the checkpoints of this partition. Those of an earlier topic of the same name, which was deleted, do not
        count. They are rows of a compacted topic, and hold nothing back from retention."""
        table = self.settings.names.checkpoints
        found = {}
        for key, row in (read_table(self.cluster, table) if self.cluster.find(table) is not None else {}).items():
            topic, partition, name = json.loads(key)
            if (topic, partition, row["topic_id"]) == (self.name, self.number, self.topic.id):
                found[name] = Checkpoint(row["offset"], row["moved_us"])
        return dict(sorted(found.items()))

    def set_checkpoint(self, name: str, offset: int | None) -> None:
        """Creates the checkpoint or moves it; None removes it. Returns when the brokers have that."""
        table = self.settings.names.checkpoints
        if offset is not None:
            ensure_table(self.cluster, table, None)
        key = json.dumps([self.name, self.number, name])
        row = {"offset": offset, "topic_id": self.topic.id, "moved_us": int(time.time() * 1e6)}
        write_row(self.cluster, table, key, None if offset is None else row, f"writing to topic {table}")

    def kept(self, offset: int) -> int:
        """Returns the offset. Raises PositionLost where retention has removed the record there."""
        first = self.first()
        if offset < first:
            raise self.lost(first)
        return offset

    def lost(self, first: int) -> PositionLost:
        return PositionLost(f"{self.url}: the offsets before {first} have been removed by retention", first)


def _number_of(at: TopicUrl, topic: Topic) -> int:
    if at.partition is not None:
        topic.check_has(at.partition)
        return at.partition
    if topic.partitions > 1:
        raise ValueError(
            f"topic {topic.name} has the partitions 0 to {topic.partitions - 1}, and a reader or writer has one of them; "
            f"choose it: {at}?partition=0"
        )
    return 0


class Opened:
    """A reader or a writer of a topic: it is open until close(), in the process that has opened it."""

    _kind: ClassVar[str]  # "reader" or "writer", for errors
    _closed = False

    def __init__(self, at: TopicUrl) -> None:
        self._url = str(at)
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<jlog.kafka.{type(self).__name__} {self._url!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled; hand over its URL and name, and open one where they arrive"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise JournalClosed(f"{self._url}: this {self._kind} is closed; open a new one")
        if self._pid != os.getpid():
            raise JournalClosed(
                f"{self._url}: this {self._kind} belongs to the process that this one was forked from; open a new one"
            )

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
