"""Moves records from a source to a sink, each exactly once where both ends can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from jlog.errors import text_of
from jlog.flow.ends import (
    Lag,
    NoRoom,
    RecordRefused,
    Refused,
    Retry,
    Sink,
    Source,
    SourcePosition,
    SourcePositionChange,
    TookTooLong,
    Undecided,
    Unsettled,
    changed_by,
    difference,
)
from jlog.flow.letters import DeadLetters, End, Made
from jlog.flow.normal import apply
from jlog.flow.options import FlowOptions
from jlog.flow.records import Function, RecordLike
from jlog.flow.stats import FlowStats
from jlog.flow.stop import Stopped

LINGERS = 5  # longest transaction while records keep coming, as many times `linger`
TRANSACTION_BYTES = 32 << 20
SLOW_SECONDS = 0.1  # a function that needs less for all records of a batch is not slow
GROWTH, SLOW_GROWTH = 2.0, 1.1  # of a transaction's records, after it was halved; SLOW_GROWTH if its time was over
CHUNK_RECORDS = 2_000
IDLE_SECONDS = 1.0  # seconds after which a source position that moved without records is committed
RETRY_SECONDS = 0.1, 5.0  # first and longest wait, in seconds
SLICE_OF_RATE = 0.1  # seconds of records that are read in one piece where a rate is set


class Flow:
    """Runs `source` into `sink`. The sink commits records and source position together, and only that position says where to go
    on.

    options: see FlowOptions.
    open_source: opens the source.
    open_sink: opens the sink of this source.
    open_letters: opens the place for refused records, if the options name one. An error of any of the three closes what was
        opened before.
    """

    def __init__(
        self,
        options: FlowOptions,
        open_source: Callable[[], Source],
        open_sink: Callable[[Any], Sink],
        open_letters: Callable[[Any, Any, FlowOptions], DeadLetters] | None = None,
    ) -> None:
        self.stats: FlowStats = FlowStats()
        self._options = options
        self._stop = options.stop
        self._function = options.function
        self._letters: DeadLetters | None = None
        with ExitStack() as opened:
            self.source: Source = open_source()
            opened.callback(self.source.discard)
            self.sink: Sink = open_sink(self.source)
            opened.callback(self.sink.close)
            if open_letters is not None and options.dead_letter is not None:
                self._letters = open_letters(self.source, self.sink, options)
            opened.pop_all()
        self._open = False
        self._ever_open = False
        self._cannot_begin = False  # an error has ended the flow before both ends were open once
        self._committed: SourcePosition = {}
        self._limit = self.sink.transaction_records
        self._alone: Any = None  # the record of the open transaction, while it has but one
        # Records that were refused when the transaction was tried before, by their place. A source of several parts may hand
        # them out in another order when it is read again.
        self._known: dict[str, str] = {}  # with the reason
        self._left_out: list[str] = []  # those in the open transaction
        self._end: End | None = None  # where the open transaction ends, at a refused record
        self._in_function = False
        self._free_at = 0.0  # time when the rate allows the next record
        self._moved_at = time.monotonic()
        self._retry_after = RETRY_SECONDS[0]
        self._pending = [0, 0]  # records and bytes of the open transaction
        self._growth = GROWTH
        self._has_given_back = False  # the source hands out records once more

    # --- Running ----------------------------------------------------------------------------------------------------

    def run(self) -> FlowStats:
        """Runs until stop(), or with until_end up to the end. Goes on by itself after errors that may pass, and raises the
        others."""
        try:
            while not self._stop.requested:
                retries = self.stats.retries
                moved = self.step(timeout=0.2)
                if self.stats.retries > retries:
                    self._stop.wait(self._retry_after)
                    self._retry_after = min(2 * self._retry_after, RETRY_SECONDS[1])
                elif not moved and self._options.until_end and self._open and self.source.at_end():
                    break
        except Stopped:
            pass  # the broker aborts what is left open, and the next start finds the source position
        finally:
            self.close()
        return self.stats

    def stop(self) -> None:
        """Ends run() within 2 s, from another thread or a signal handler. The open transaction is committed if the sink answers
        in time."""
        self._stop.request()

    def interrupt_function(self) -> None:
        """Raises Stopped where the function is running although the time to stop is over. For a signal handler, in the thread
        of run()."""
        if self._in_function:
            self._stop.slice()

    @property
    def is_open(self) -> bool:
        """Whether both ends could be reached at the last attempt. False before the first step, and after the end."""
        return self._open

    @property
    def was_open(self) -> bool:
        """Whether both ends could be reached at least once."""
        return self._ever_open

    def lag(self) -> Lag:
        """Returns the lag of the committed source position. May be called in another thread."""
        return self.source.lag(self._committed)

    def close(self) -> None:
        self._open = False
        self._alone = None
        with ExitStack() as closing:
            closing.callback(self.source.discard if self._cannot_begin else self.source.close)
            if self._letters is not None:
                closing.callback(self._letters.close)
            self.sink.close()

    def set_position(self, position: Any, part: str | None = None) -> SourcePosition:
        """Sets where the next run goes on, whatever was moved before, in one commit of the sink. Nothing else changes: records
        that were moved stay where they are, and those after an earlier position are moved again. Ends the flow; create it
        anew to run it.

        position: "begin", "end", an aware datetime, or a sequence; for a topic the offset of one partition.
        part: TOPIC or TOPIC/PARTITION, for a source of topics; None: all of the source.

        Returns the parts of the position that it has set. Raises ValueError where the source has no such part or position;
        JournalLocked, SubscriberBusy or Fenced where another process moves the records at this time.
        """
        with closing(self), self._beginning():
            stored = self.sink.open(forget=part is None)
            wanted = self.source.positions_at(position, part, stored)
            self.sink.prepare(wanted)
            self.source.secure()
            self.sink.commit()
            self.source.committed()
        return {name: source_position for name, source_position in wanted.items() if source_position is not None}

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Notes an error that ends the flow before both ends were open once."""
        try:
            yield
        except (Retry, Stopped):
            raise
        except Exception:
            self._cannot_begin = not self._ever_open
            raise

    def step(self, timeout: float = 0.0) -> int:
        """Moves one transaction of the records that come within `timeout` seconds. Returns how many of the source's records it
        moved. It returns 0 also where an end could not be reached (stats.retries); the next step tries again."""
        self._pending = [0, 0]
        self._left_out = []
        self._end = self._alone = None  # a message that is kept keeps its client too
        try:
            self._ensure_open()
            moved = self._fill(timeout)
            source_positions = self.source.source_positions()
            commits = moved > 0 or bool(difference(self._committed, source_positions) and self._is_idle())
            if commits:
                self._commit(source_positions)
            elif self._end is None:
                self.sink.look()
        except Refused as error:
            self._give_up(error)
            return 0
        except Retry as error:
            self._try_again(error)
            return 0
        if commits:
            self._options.on_commit(self._pending[0])
        self._tell_problem()
        if self._end is not None:
            raise self._refusal(self._end)
        return moved

    def _tell_problem(self) -> None:
        problem = self.source.problem or self.sink.problem
        if problem and problem != self.stats.problem:
            self._options.on_event(problem)
        self.stats.problem = problem

    def _ensure_open(self) -> None:
        if self._open:
            if self._has_given_back:
                self.source.resume(self._committed)
                self._has_given_back = False
            return
        self._has_given_back = False
        with self._beginning():
            source_positions = self.sink.open()
            if self._letters is not None:
                self._letters.open(source_positions)
            self.source.resume(source_positions)
        self._committed = source_positions
        self._open = self._ever_open = True

    def _is_idle(self) -> bool:
        return self._options.until_end or self._stop.requested or time.monotonic() - self._moved_at > IDLE_SECONDS

    # --- A transaction ----------------------------------------------------------------------------------------------

    def _fill(self, timeout: float) -> int:
        """Reads and writes until the transaction is full, or its time is over."""
        moved = 0
        until = time.monotonic() + timeout
        while moved < self._limit:
            wait = self._stop.slice(max(0.0, until - time.monotonic()))
            batch = self.source.read(self._chunk(self._limit - moved), wait if not self._stop.requested else 0)
            now = time.monotonic()
            if not len(batch):
                if now >= until or self._stop.requested or (self._options.until_end and self.source.at_end()):
                    break
                continue
            if moved == 0:
                until, full_at = now + self._options.linger, now + LINGERS * self._options.linger
            self._pending[0] = moved + len(batch)
            self._pending[0] = moved = moved + self._write(batch)
            size = self._pending[1] + self.sink.overhead_bytes + (0 if self._letters is None else self._letters.bytes)
            is_over = self._end is not None or self._has_given_back or self._stop.requested
            if is_over or time.monotonic() >= full_at or size >= TRANSACTION_BYTES:
                break
        return moved

    def _chunk(self, wanted: int) -> int:
        """Returns how many records to read next, once the rate allows them."""
        if self._options.rate is None:
            return min(wanted, CHUNK_RECORDS)
        self._stop.wait(self._free_at - time.monotonic())
        return max(1, min(wanted, CHUNK_RECORDS, int(self._options.rate * SLICE_OF_RATE)))

    def _write(self, batch: Any) -> int:
        """Writes the records, and returns how many of them are moved or left out. The source gets the others back: those from
        a refused record on at which the flow ends, or those that a slow function has not had."""
        if self._options.rate is not None:
            self._free_at = max(self._free_at, time.monotonic() - SLICE_OF_RATE) + len(batch) / self._options.rate
        if self._pending[0] == 1:
            (self._alone,) = batch
        done = len(batch)
        if self._function is None and not self._known:
            self._pending[1] += self.sink.write(batch, partial(self._refuse, None))
        else:
            made, done = self._make(batch)
            self._pending[1] += self.sink.write([one.record for one in made], partial(self._refuse, made))
        if self._end is not None:
            done = self._end.number
        if done < len(batch):
            self.source.give_back(batch, done)
            self._has_given_back = True
            if self._options.rate is not None:
                self._free_at -= (len(batch) - done) / self._options.rate
        return done

    def _make(self, batch: Any) -> tuple[list[Made], int]:
        """Returns the records that the function makes, without those that are known to be refused, and how many of the batch
        it has had: a slow function gets the others in the next transaction, before the time of this one is over."""
        until = time.monotonic() + max(LINGERS * self._options.linger, SLOW_SECONDS)
        made: list[Made] = []
        for index, record in enumerate(batch):
            self._stop.slice()  # a function may be slow: raises Stopped when the time to stop is over
            if index and time.monotonic() >= until:
                return made, index
            try:
                self._check_known(record)
                several = [record] if self._function is None else self._apply(self._function, record)
            except Refused as error:
                goes_on = self._treat(index, record, record, str(error))
            except Undecided:
                raise  # the codec could not ask a service what the record holds
            except Exception as error:  # noqa: BLE001 - whatever the user's function raises is reported with its record
                goes_on = self._treat(
                    index, record, record, f"the transform raised {type(error).__name__}: {text_of(error)}", error
                )
            else:
                goes_on = True
                made += [Made(one, index, record) for one in several]
            if not goes_on:
                break
        return made, len(batch)

    def _apply(self, function: Function, record: Any) -> list[RecordLike]:
        """Calls the user's function, which interrupt_function() may end."""
        self._in_function = True
        try:
            return apply(function, record)
        finally:
            self._in_function = False

    def _check_known(self, record: Any) -> None:
        """Raises Refused where it is known already that the record is refused."""
        if self._known and (reason := self._known.get(where := self.source.describe(record))):
            self._left_out.append(where)
            raise Refused(reason)

    def _refuse(self, made: list[Made] | None, index: int, record: Any, reason: str) -> bool:
        """Is called by the sink: it refuses this record, which it was given at this index. Returns whether the sink takes those
        after it."""
        if made is None:
            return self._treat(index, record, record, reason)
        of, origin = made[index].number, made[index].origin
        if self._options.refused == "stop" and index and made[index - 1].number == of:
            raise Refused(reason, origin)  # other records that were made of the same one are in the transaction already
        return self._treat(of, origin, record, reason)

    def _treat(self, index: int, origin: Any, record: RecordLike, reason: str, cause: Exception | None = None) -> bool:
        """Leaves a record out, or ends the transaction before the source's record that it was made of. Returns whether it
        goes on."""
        where = self.source.describe(origin)
        if self._options.refused == "stop":
            self._end = End(index, where, reason, getattr(origin, "sequence", None), cause)
            return False
        self._options.on_event(f"{where} is refused: {reason} (on its way to {self.sink.where})")
        self.sink.leave_out()
        if self._letters is not None:
            self._letters.add(record, where, reason, origin)
        return True

    def _commit(self, source_positions: SourcePositionChange) -> None:
        self.sink.prepare(source_positions)
        self.source.secure()
        left_out = self.sink.left_out
        if self._letters is not None:
            self._letters.store()
        self.sink.commit()
        self._committed = changed_by(self._committed, source_positions)
        if self._letters is not None:
            self._letters.confirm(self._committed)
        self.source.committed()
        stats = self.stats
        stats.refused += left_out
        stats.records += self._pending[0]
        stats.bytes += self._pending[1]
        stats.transactions += 1
        stats.missing = self.source.missing
        for where in self._left_out:
            self._known.pop(where, None)
        self._limit = min(int(self._growth * self._limit) + 1, self.sink.transaction_records)
        if self._limit == self.sink.transaction_records:
            self._growth = GROWTH
        self._retry_after = RETRY_SECONDS[0]
        self._moved_at = time.monotonic()

    # --- Errors -----------------------------------------------------------------------------------------------------

    def _give_up(self, error: Refused) -> None:
        """Gives the transaction up, since the sink refuses one of its records, and says so only now. Where it is not known
        which one it is, the transaction is halved until it is alone."""
        if not self._pending[0]:
            raise error
        self.stats.aborted += 1
        self.stats.last_error = str(error)
        records = self._pending[0]
        refused = error.record if error.record is not None else self._alone if records == 1 else None
        if refused is None:
            self._limit = max(1, records // 2)
        elif (where := self.source.describe(refused)) in self._known:  # the sink does not even take it as a dead letter
            raise self._refusal(End(0, where, str(error), getattr(refused, "sequence", None)))
        else:
            self._known[where] = str(error)
        try:
            self._drop_letters()
            self._open = self.sink.abort()
            if self._open:
                self.source.resume(self._committed)
        except Retry as retry:
            self._try_again(retry)

    def _refusal(self, end: End) -> RecordRefused:
        self._known.pop(end.where, None)
        self._end = None
        self._open = False  # a further step takes the record again
        found = RecordRefused(
            f"{end.where} is refused: {end.reason}; all before it has been moved to {self.sink.where}; skip it (--refused "
            f"skip), put it with the dead letters (--refused dead-letter), or change the sink",
            end.sequence,
        )
        found.__cause__ = end.cause
        return found

    def _drop_letters(self) -> None:
        if self._letters is not None:
            self._letters.drop()

    def _try_again(self, error: Retry) -> None:
        self.sink.drop()
        self._drop_letters()
        self._open = False
        if not self._ever_open and not isinstance(error, Unsettled):
            raise error
        text = str(error)
        if isinstance(error, NoRoom):
            self._limit = max(1, self._pending[0] // 2)  # there may never be room for all of it at once
            text += "; nothing is lost: the flow waits for room"
        if isinstance(error, TookTooLong):
            self._limit = max(1, (self._pending[0] or self._limit) // 2)
            self._growth = SLOW_GROWTH  # else every other transaction would take too long
        if text != self.stats.last_error:
            self._options.on_event(f"{text}; trying again")
        self.stats.retries += 1
        self.stats.last_error = text
