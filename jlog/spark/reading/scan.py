"""Reads the ranges of a task, on whichever host of the cluster it runs."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import jlog
from jlog.errors import JournalError, JournalNotFound, PositionLost
from jlog.spark.reading.options import PERMISSIVE, ReadOptions
from jlog.spark.reading.plan import Range
from jlog.spark.reading.spark_archive import TaskReader
from jlog.spark.reading.spark_journal import lost
from jlog.storage.damage import past_damage

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import InputPartition

    from jlog.spark.reading.columns import OutputColumns

# Batches are large enough to read fast; their bytes are limited, for Java takes each at once.
BATCH_RECORDS = 32_768
BATCH_BYTES = 16 << 20

logger: logging.Logger = logging.getLogger("jlog.spark")


def read_partition(partition: InputPartition, columns: OutputColumns, options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    for wanted in getattr(partition, "ranges", []):  # Spark creates a partition without ranges if there are none
        for batch in read_range(wanted, columns.of_records, options):
            yield columns.exactly(batch, wanted.source.name)


def read_range(wanted: Range, names: list[str], options: ReadOptions) -> Iterator[pyarrow.RecordBatch]:
    """Yields all records of the range, or raises an error that says where reading stopped."""
    if wanted.gaps is not None:
        yield from _sequences(wanted.start, wanted.end, wanted.gaps)
        return
    with _open(wanted, options) as reader:
        batches = reader.record_batches(max_records=BATCH_RECORDS, max_bytes=BATCH_BYTES, columns=names, end=wanted.end)
        while True:
            try:
                yield from past_damage(lambda: next(batches, None), reader.skip_damage, partial(_note_damage, wanted, options))
                break
            except PositionLost as error:
                if options.fail_on_data_loss:
                    raise lost(wanted.source.path, reader.position, error.first_sequence) from None
                if error.first_sequence >= wanted.end:
                    _note_lost(wanted, reader.position, wanted.end)
                    return
                _note_lost(wanted, reader.position, error.first_sequence)
                reader.seek(error.first_sequence)
        if reader.position < wanted.end:
            raise JournalError(
                f"{wanted.source.path} ends at sequence {reader.position} on {socket.gethostname()}, where this task runs, "
                f"and at {wanted.end} or later where the query was planned: all nodes must see the same files. If they do, "
                "the newest records have not reached these files yet: the option durable=true reads synced records only"
            )


def _sequences(start: int, end: int, gaps: Iterable[tuple[int, int]]) -> Iterator[pyarrow.RecordBatch]:
    """Yields the sequences that lie in no gap, with no look at the journal."""
    import pyarrow
    import pyarrow.compute as compute

    from jlog.spark.reading.columns import integers

    numbers = integers(range(min(BATCH_RECORDS, end - start)))
    at = start
    for first, last in [*gaps, (end, end)]:
        while at < min(first, end):
            count = min(BATCH_RECORDS, min(first, end) - at)
            yield pyarrow.RecordBatch.from_arrays([compute.add(numbers[:count], integers([at])[0])], ["sequence"])
            at += count
        at = max(at, last)


def _open(wanted: Range, options: ReadOptions) -> jlog.Reader | TaskReader:
    source = wanted.source
    try:
        return source.reader(wanted.start)
    except JournalNotFound:
        raise JournalNotFound(
            f"there is no journal at {source.path} on {socket.gethostname()}, where this task runs, though there is one where "
            "the query was planned: all nodes must see it under the same path, on a file system that they share",
            source.path,
        ) from None
    except PositionLost as error:
        if options.fail_on_data_loss:
            raise lost(source.path, wanted.start, error.first_sequence) from None
        _note_lost(wanted, wanted.start, min(wanted.end, error.first_sequence))
        return source.reader(error.first_sequence)


def _note_lost(wanted: Range, start: int, end: int) -> None:
    logger.warning("%s: the records from %d to %d are gone, and left out", wanted.source.path, start, end - 1)


def _note_damage(wanted: Range, options: ReadOptions, damage: jlog.Damage) -> None:
    last = damage.first_sequence + damage.records_lost - 1
    if options.mode != PERMISSIVE:
        raise JournalError(
            f"{damage.path}: damaged at byte {damage.offset}: {damage.reason}; the records from {damage.first_sequence} to "
            f"{last} cannot be read. The option mode=permissive reads the others; `jlogtool verify` lists all damage, "
            "`jlogtool repair` keeps what can still be read"
        )
    start, end = max(damage.first_sequence, wanted.start), min(last + 1, wanted.end)
    here = replace(damage, first_sequence=start, records_lost=end - start)  # the rest belongs to another task
    logger.warning(
        "%s: damaged at byte %d: %s; the %d records from %d on are left out",
        damage.path, damage.offset, damage.reason, here.records_lost, start,
    )  # fmt: skip
    if options.damage_path is not None:
        _write_damage(options.damage_path, wanted.source.name, here)


def _write_damage(directory: str, journal: str, damage: jlog.Damage) -> None:
    """Writes a file for each damaged place and partition: a task that is repeated, or runs twice, writes the same again."""
    os.makedirs(directory, exist_ok=True)
    place = f"{damage.path}:{damage.offset}:{damage.first_sequence}"
    name = sha256(os.fsencode(place)).hexdigest()[:32] + ".json"
    content = {"journal": journal, **asdict(damage)}
    part = os.path.join(directory, f".{name}.{os.getpid()}")
    with open(part, "w", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
    os.replace(part, os.path.join(directory, name))
