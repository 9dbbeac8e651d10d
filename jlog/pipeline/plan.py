"""The plan of a pipeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jlog.urls import place_of

if TYPE_CHECKING:
    from jlog.pipeline.parsing import Parser

BATCH_RECORDS = 5_000_000
PARQUET, ICEBERG = "parquet", "iceberg"
OTHER, ADD, FAIL = "other", "add", "fail"  # what becomes of fields without a column


@dataclass(frozen=True)
class MaxBad:
    """The most records of a run that may go to the quarantine: a number, or a percentage of its records."""

    most: float
    is_percentage: bool = False

    @classmethod
    def parse(cls, text: str) -> MaxBad:
        found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)\s*%", text.strip(), re.ASCII)
        if found is None:
            raise ValueError(f"{text!r} is neither a number of records nor a percentage; write 100 or 1%")
        return cls(float(found[1] or found[2]), found[1] is None)

    def allows(self, bad: int, records: int) -> bool:
        return bad <= (records * self.most / 100 if self.is_percentage else self.most)

    def __str__(self) -> str:
        return f"{self.most:g}{'%' if self.is_percentage else ''}"


@dataclass(frozen=True)
class PipelinePlan:
    """sources: paths of journals, URLs of archives, and kafka:// URLs.
    dest, checkpoint, quarantine: directories of any file system that Spark knows.
    format: that of dest and quarantine. is_table: these are names of tables, and not directories.
    compact_every: small files are joined after so many batches; None: never.
    expire_seconds: with that, snapshots of Iceberg that are older expire; None: they stay.
    interval: seconds from batch to batch; None: reads up to the ends and stops.
    schema: the fields, as DDL; None: those of the first records.
    subscriber: a subscriber of the journals that follows.
    start: where a new pipeline begins: earliest, latest, or a time with a UTC offset; None: at its subscriber, or earliest.
    until: the run ends before the first record at or after this time, or before this sequence; None: at the present ends.
    journal_pattern: a regular expression for the journals below the one source.
    fail_on_data_loss: False goes on after records that are gone.
    evolve: what becomes of fields without a column: they go to `other`, are added as columns, or end the pipeline.
    max_bad: the pipeline ends before more records than this go to the quarantine; None: all may.
    adopt: a new checkpoint takes over dest from another pipeline, and goes on after its last batch.
    retry_quarantine: at the end, what can be parsed by now of the quarantine is added to dest."""

    sources: tuple[str, ...]
    dest: str
    checkpoint: str
    quarantine: str
    parser: Parser
    schema: str | None = None
    partition_by: tuple[str, ...] = ("date",)
    interval: float | None = None
    batch_records: int = BATCH_RECORDS
    subscriber: str | None = None
    query: str | None = None
    start: str | None = None
    until: str | None = None
    journal_pattern: str | None = None
    fail_on_data_loss: bool = True
    format: str = PARQUET
    is_table: bool = False
    compact_every: int | None = None
    expire_seconds: float | None = None
    evolve: str = OTHER
    max_bad: MaxBad | None = None
    adopt: bool = False
    retry_quarantine: bool = False

    def __post_init__(self) -> None:
        if self.evolve != OTHER and not self.parser.needs_sample:
            raise ValueError(f"--evolve {self.evolve} needs --parse json or --parse logfmt, whose records may have new fields")
        if self.format == PARQUET and self.evolve == ADD:
            raise ValueError(
                "--evolve add needs --format delta or --format iceberg: many readers of plain Parquet files take the columns "
                "of one file, and would not see new ones"
            )
        if self.until is not None and self.interval is not None:
            raise ValueError("--until needs --trigger available-now: a pipeline that follows has no end")
        if self.retry_quarantine and (self.interval is not None or not self.parser.makes_fields):
            raise ValueError("--retry-quarantine is for a run that ends and parses values: give --parse, and no --trigger")
        for source in self.sources:
            if self.sources.count(source) > 1:
                raise ValueError(f"{source} is named twice")
        without = [source for source in map(place_of, self.sources) if not source.is_journal]
        if self.subscriber is not None and (len(without) == len(self.sources) or without != self.topics):
            raise ValueError(
                f"--subscriber is for journals, and {', '.join(without)} cannot have one: leave it out. The checkpoint keeps "
                "the pipeline's place. An archive keeps its segments, and a topic its messages as its own settings say"
            )
        if self.journal_pattern is not None and len(self.topics) == len(self.sources):
            raise ValueError("--journal-pattern looks for journals below a directory, and a topic has none: leave it out")
        if self.format == PARQUET and self.is_table:
            raise ValueError("--table needs --format delta or --format iceberg: plain Parquet files have no catalog")
        hidden = [name for name in self.partition_by if not name or name[0] in "_."] if self.format == PARQUET else []
        if hidden:
            raise ValueError(
                f"--partition-by {hidden[0]}: readers of plain Parquet files leave out directories whose names begin with _ "
                "or ., and would not see the rows. Partition by another column, or use --format delta or --format iceberg"
            )
        if self.format == PARQUET and self.compact_every is not None:
            raise ValueError(
                "--compact-every needs --format delta or --format iceberg: while plain Parquet files are joined, a reader "
                "would see rows twice or miss them"
            )
        if self.expire_seconds is not None and (self.format != ICEBERG or self.compact_every is None):
            raise ValueError(
                "--expire-snapshots needs --format iceberg and --compact-every: snapshots expire when files were joined. Delta "
                "Lake has VACUUM, and plain Parquet files have no history"
            )

    @property
    def topics(self) -> list[str]:
        return [source for source in self.sources if place_of(source).is_topic]

    @property
    def directories(self) -> list[str]:
        """Returns the directories to which both the driver and the tasks write."""
        return [] if self.is_table else [self.dest, self.quarantine]

    @property
    def identity(self) -> dict[str, Any]:
        """Returns the parts that must not change from run to run."""
        found = {
            "dest": self.dest,
            "quarantine": self.quarantine,
            "parse": self.parser.kind,
            "partition_by": list(self.partition_by),
        }
        return found if self.format == PARQUET else {**found, "format": self.format}
