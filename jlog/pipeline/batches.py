"""Handles each batch of the pipeline: loads records with their fields, and quarantines bad ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from jlog.errors import JournalError
from jlog.pipeline.expected import Expected
from jlog.pipeline.inference import FIELDS_MAX, folded
from jlog.pipeline.parsing import ERROR
from jlog.pipeline.partitions import check_type, misfit, restricted
from jlog.pipeline.plan import ADD, FAIL, OTHER, PARQUET
from jlog.pipeline.tables.table import BatchId

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from jlog.pipeline.checkpoint import Checkpoint
    from jlog.pipeline.destination import Tables
    from jlog.pipeline.plan import PipelinePlan

logger: logging.Logger = logging.getLogger("jlog.spark")

PLACE = ("journal", "sequence", "timestamp")  # of a record; a journal that was replaced has the same sequences again
BAD = ("error", "sequence", "timestamp", "key", "value", "headers", "journal", "date")


class Loading:
    """Adds records to the destination, and the unchanged records that could not be parsed to the quarantine."""

    def __init__(
        self,
        spark: SparkSession,
        plan: PipelinePlan,
        tables: Tables,
        checkpoint: Checkpoint,
        sample: Callable[[DataFrame], list[bytes]],
    ) -> None:
        """sample: returns values of all sources, given the first batch."""
        self._sample = sample
        self._spark = spark
        self._plan = plan
        self._dest = tables.records
        self._quarantine = tables.quarantine
        self._checkpoint = checkpoint
        self._fields: StructType | None = None
        self._records = self._bad = 0
        self._warned = False

    def add(self, batch: BatchId, frame: DataFrame, expected: Expected) -> tuple[int, int]:
        """Adds a batch, and returns the numbers of good and bad records. Raises JournalError where the expected records, those
        that the tasks have read, and the rows in the tables do not agree; then the whole batch is discarded. The bad records
        are written before the good ones count: what the destination says up to where it was loaded holds for both. (Only Delta
        Lake shows rows before they are checked. There a kill may leave the bad ones to the next run.)"""
        frame = frame.coalesce(expected.tasks)  # a topic has a task for each of its partitions, however few records they have
        parsed = self._parsed_batch(frame)
        if not self._plan.parser.makes_fields and not self._restricted(parsed):
            return self._dest.add(batch, parsed.drop(ERROR), expected.check).rows, 0
        seen = Observation()
        counts = (f.count(f.lit(1)).alias("all"), f.count(ERROR).alias("bad"), f.min(ERROR).alias("reason"))
        observed = parsed.observe(seen, *counts)
        good = self._good(observed)
        bad = parsed.where(f.col(ERROR).isNotNull()).select(*BAD)

        def check(written: int) -> None:
            expected.check(seen.get["all"])
            _check_equal(written, seen.get["all"] - seen.get["bad"])
            self._check_bad(**seen.get)
            if seen.get["bad"]:  # a batch without bad records, as most are, is not read again
                self._quarantine.add(batch, bad, lambda written: _check_equal(written, seen.get["bad"]))

        added = self._dest.add(batch, good, check)
        if added.is_new:
            self._count(**seen.get)
            return added.rows, seen.get["bad"]
        return added.rows, self._quarantine.add(batch, bad, lambda written: expected.check(added.rows + written)).rows

    def retry(self) -> int:
        """Adds the records of the quarantine that can be parsed by now and are not in the destination, in one step; returns
        their number. The destination itself says which ones it has, so a second call adds nothing, whatever was killed."""
        frame, there = self._quarantine.table.frame(), self._dest.table.frame()
        if frame is None:
            return 0
        if there is not None:
            frame = frame.join(there.select(*PLACE), list(PLACE), "left_anti")
        good = self._good(self._parsed_batch(frame))
        if good.isEmpty():
            return 0
        seen = Observation()
        observed = good.observe(seen, f.count(f.lit(1)).alias("rows"))
        return self._dest.add_retried(observed, lambda written: _check_equal(written, seen.get["rows"]))

    def _parsed_batch(self, frame: DataFrame) -> DataFrame:
        parsed = self.parsed(frame, self._evolved(frame, self._fields_of(frame)))
        self._check_partitions(parsed)
        return parsed

    def _good(self, parsed: DataFrame) -> DataFrame:
        """Returns the records that could be parsed, as they are in the destination."""
        parser = self._plan.parser
        dropped = [ERROR] if parser.keep_value or not parser.makes_fields else [ERROR, "value"]
        return parsed.where(f.col(ERROR).isNull()).drop(*dropped)

    def _check_bad(self, all: int, bad: int, reason: str | None) -> None:  # noqa: A002
        """Raises JournalError where so many bad records are too many."""
        bad, records, limit = self._bad + bad, self._records + all, self._plan.max_bad
        if limit is not None and not limit.allows(bad, records):
            raise JournalError(
                f"{bad} of the {records} records of this run cannot be parsed, and --max-bad {limit} was given; for example: "
                f"{reason}. The whole batch is discarded. Change --parse, --pattern or --schema, or allow more"
            )

    def _count(self, all: int, bad: int, reason: str | None) -> None:  # noqa: A002
        self._records, self._bad = self._records + all, self._bad + bad
        if not self._warned and self._bad == self._records > 0:
            self._warned = True
            logger.warning(
                "all %d records of this run have gone to the quarantine, %s, for example because %s. Do --parse and --schema "
                "match the values?", self._bad, self._plan.quarantine, reason,
            )  # fmt: skip

    def _check_partitions(self, frame: DataFrame) -> None:
        for name in self._plan.partition_by:
            if name not in frame.columns:
                raise ValueError(f"there is no column {name} to partition by; the columns are {', '.join(frame.columns)}, hour")
            check_type(name, frame.schema[name].dataType, self._plan.format)

    def _restricted(self, frame: DataFrame) -> list[str]:
        return restricted(frame.schema, self._plan.partition_by, self._plan.format)

    def parsed(self, frame: DataFrame, fields: StructType) -> DataFrame:
        plan = self._plan
        is_part = plan.schema is not None and plan.evolve == OTHER  # mostly a choice of the fields
        found = plan.parser.parse(frame, fields, is_part=is_part)
        found = found.withColumn("date", _date_of("timestamp"))
        if "hour" in plan.partition_by:
            found = found.withColumn("hour", f.hour("timestamp"))
        inexact = self._restricted(found)
        return found.withColumn(ERROR, f.coalesce(ERROR, misfit(inexact, plan.format))) if inexact else found

    # --- Fields -------------------------------------------------------------------------------------------------------

    def _fields_of(self, frame: DataFrame) -> StructType:
        """Returns the fields that are given, or those of sampled records, which hold from then on."""
        if self._fields is None:
            self._fields = self._known_fields()
        if self._fields is not None:
            return self._fields
        found = self._plan.parser.infer(self._spark, self._sample(frame))
        if found.fields:
            self._checkpoint.keep_fields(found)
            self._fields = found
        return found

    def _evolved(self, frame: DataFrame, fields: StructType) -> StructType:
        """Returns the fields with those that a batch brings, if they are to be added. They are kept before the batch is
        written: after a kill it comes again, and has the same columns."""
        plan = self._plan
        if plan.evolve == FAIL:
            found = plan.parser.first_unknown(frame, fields)
            if found is not None:
                sequence, journal, name = found
                raise JournalError(
                    f"record {sequence} of {journal} has the field {name!r}, for which there is no column, and --evolve fail "
                    "was given. The whole batch is discarded. To go on, name the field in --schema, or use --evolve "
                    f"other{'' if plan.format == PARQUET else ' or --evolve add'}"
                )
        if plan.evolve != ADD or len(fields.fields) >= FIELDS_MAX:
            return fields
        new = [one for one in plan.parser.new_fields(frame, fields) if self._dest.table.takes_column(one.name)]
        if new:
            self._fields = fields = StructType([*fields.fields, *new[: FIELDS_MAX - len(fields.fields)]])
            self._checkpoint.keep_fields(fields)
        return fields

    def _known_fields(self) -> StructType | None:
        if self._plan.schema is not None:
            given = StructType.fromDDL(self._plan.schema)
            if not isinstance(given, StructType):
                raise ValueError(f"the schema {self._plan.schema!r} has no fields; write 'level string, ms double'")
            added = self._checkpoint.fields() if self._plan.evolve == ADD else None
            names = {folded(name) for name in given.names}
            return StructType([*given.fields, *(one for one in added or [] if folded(one.name) not in names)])
        return self._checkpoint.fields() if self._plan.parser.needs_sample else self._plan.parser.fields()


def _date_of(time: str) -> Column:
    """Returns the UTC date of a time; null outside the years 1 to 9999, which readers of directories take for text."""
    return f.when(f.year(time).between(1, 9999), f.to_date(time))


def _check_equal(written: int, counted: int) -> None:
    if written != counted:
        raise JournalError(f"the tasks have read {counted} rows, but have written {written}; run the pipeline again")
