"""The compiled part of a Writer: the path of every append."""

import os
from collections.abc import Mapping

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset, strcmp

from jlog._core.write.attachment cimport Attachment, Leaving
from jlog._core.records.encode cimport EncodedRecords, as_bytes, column_of, time_us_of, too_large
from jlog._core.format.format cimport JLOG_ID_BYTES_MAX, JLOG_SHORT_BYTES, JLOG_VALUE_BYTES_MAX
from jlog._core.write.ingest cimport NOT_INGESTED, ingest as ingest_file
from jlog._core.system.lock cimport Deadline

from jlog._core.process.operation cimport APPEND, DONE, Append
from jlog._core.process.process cimport Appender
from jlog._core.append.operations cimport make_direct
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, JLOG_SYNC_APPEND, jlog_buffer, jlog_page
from jlog._core.buffer.publish cimport jlog_put_record, jlog_put_value, jlog_wake
from jlog._core.system.atomic cimport jlog_futex_wait, jlog_spin_lock, jlog_unlock
from jlog._core.system.clock cimport jlog_clock, jlog_now_us
from jlog._core.records.rows cimport body_of_arrow

from jlog._core.write.attachment import attach
from jlog._core.append.operations import closed_error
from jlog._core.system.lock import NEVER
from jlog.errors import JournalClosed, JournalError, JournalLocked, JournalMoved

cdef extern from "Python.h":
    ctypedef struct PyMethodDef:
        const char *ml_name
    ctypedef struct PyTypeObject:
        PyMethodDef *tp_methods
    object PyDescr_NewMethod(PyTypeObject *type, PyMethodDef *method)

cdef extern from "<stdint.h>":
    uint64_t CLOSED "UINT64_MAX"  # the token of a closed writer; no process has it

cdef extern from "system/number.h":
    object jlog_number(int64_t number)
    void jlog_make_spare_numbers()

cdef enum:
    QUICK_TURNS = 200  # attempts at the append lock while the GIL is held
    NO_MEMORY_PAUSE_US = 10_000


cdef class Writer(Appender):
    """The compiled part of jlog.Writer.

    path: absolute path of the journal's directory, which exists.
    policy: the policy for attach().
    care: the object that cleans after a roll and at a full limit, see Attachment.take_writers().
    capacity: bytes of the shared pre-commit buffer; 0: this writer bypasses it.
    options: the options that this writer changes, as policy.change() takes them.
    exclusive: no other process may write to the journal.
    lock_timeout: seconds that each later call waits in all; None: without limit.
    deadline: of this call.
    """

    cdef Attachment attachment
    cdef Leaving leaving  # what is to be done if it is collected
    cdef jlog_buffer *buffer
    cdef jlog_clock clock  # protected by the GIL
    cdef bint buffered
    cdef bint exclusive
    cdef object lock_timeout
    cdef readonly str path

    def __cinit__(self, *_, **__):
        self.token = CLOSED

    def __init__(self, str path not None, policy, care, *, uint64_t capacity, options, bint exclusive, lock_timeout,
                 Deadline deadline not None):
        self.path = path
        self.lock_timeout = lock_timeout
        self.leaving = Leaving(lock_timeout)
        self.attachment = attach(path, policy, capacity=capacity, deadline=deadline)
        self.exclusive = exclusive
        try:
            self.attachment.take_writers(exclusive, care)
            try:
                self.attachment.change_options(options, deadline)
                self.attachment.start_maintenance()
            except BaseException:
                self.attachment.give_writers(exclusive)
                raise
        except BaseException:
            attachment, self.attachment = self.attachment, None
            (<Attachment> attachment).leave(True, deadline)
            raise
        jlog_make_spare_numbers()
        self.buffer = &self.attachment.process.buffer
        self.process = self.attachment.process.locks.file.process
        self.token = self.attachment.process.locks.file.token
        self.buffered = capacity != 0  # last: append() then takes the short way, and uses the fields above
        self.attachment.process.appenders.add(self)

    def __repr__(self):
        if self.token == CLOSED:
            state = "closed"
        elif self.is_in_child():
            state = "of the parent process, until its first call"
        elif self.attachment.process.lost is not None:
            state = "of a journal that is not there any more"
        else:
            state = f"next_sequence={self.next_sequence}"
        return f"<jlog.Writer {self.path!r} {state}>"

    cdef Deadline deadline(self):
        """Returns the deadline of a call that begins now."""
        return NEVER if self.lock_timeout is None else Deadline(self.lock_timeout)

    cdef int ensure_open(self) except -1:
        """Raises JournalClosed if this writer is closed, and what the check of its process has found. In a child of a fork it
        opens the journal anew."""
        while self.token == CLOSED or self.process[0] != self.token:
            if self.token == CLOSED:
                raise closed_error(self.path)
            if not self.is_in_child():
                self.attachment.process.refuse_lost()
            self.open_in_child()  # other threads may run in it: looked at again
        return 0

    cdef bint is_in_child(self) noexcept:
        """Returns whether this is a child of the process that opened this writer, which is not closed."""
        return self.attachment.process.locks.file.process[0] != self.token

    cdef int open_in_child(self) except -1:
        """Opens the journal for this process, with the writer's own options. What is the parent's stays the parent's."""
        cdef Writer own = self._anew()
        if self.token == CLOSED or not self.is_in_child():  # another thread was first
            own.close()
            return 0
        _inherited = self.attachment  # kept until the end: no other thread may run before the token is set
        self.attachment, self.buffer, self.process, self.token = own.attachment, own.buffer, own.process, own.token
        own.attachment, own.token = None, CLOSED
        self.attachment.process.appenders.add(self)
        return 0

    cdef Attachment opened(self):
        """Returns the attachment of this process, or raises JournalClosed. The caller's reference keeps it alive during a call,
        while another thread may close this writer."""
        self.ensure_open()
        return self.attachment

    # --- Appending ----------------------------------------------------------------------------------------------

    def append(self, value, /, *, key=None, headers=None, timestamp_us=None, id=None, timestamp=None):
        """Appends one record and returns its sequence. Readers see the record from then on.

        value: Buffer | None; any contiguous bytes-like object of at most 1 GiB, copied. None is Kafka's tombstone.
        key: Buffer | None.
        headers: Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None] | None.
        timestamp_us: int | None; microseconds since 1970, 64 bits, stored as given. None: the clock's time, which never runs
            backwards within a journal.
        timestamp: datetime | None; the same as an aware datetime, in place of timestamp_us.
        id: Buffer | None; 1 to 255 bytes. If one of the last records with an id (the journal's option `dedup`) has the same
            one, nothing is appended, and the sequence of that record is returned, also where it was removed since. It survives
            what the records survive. The id is kept in the header `jlog.id`, and Record.id is it.
        Raises JournalClosed, JournalLocked (lock_timeout), RecordTooLarge, TypeError, or OSError (a full disk: once there is
        space again the next append works); the record is then not appended. A KeyboardInterrupt leaves the record appended or
        not, never half. With sync="append" an OSError of the sync itself, or a JournalLocked that says so, leaves it appended
        and not durable.
        """
        cdef int64_t sequence, now_us
        cdef jlog_page *page
        if (type(value) is bytes and key is None and headers is None and timestamp_us is None and id is None
                and timestamp is None and self.buffered):
            if self.process[0] != self.token:  # also if it is closed: no process has the token CLOSED
                self.ensure_open()
            # Nothing between the lock and the unlock touches a Python object.
            page = self.buffer.page
            now_us = jlog_now_us(&self.clock)
            if jlog_spin_lock(&page.append_lock, self.buffer.owner, QUICK_TURNS):
                sequence = jlog_put_value(self.buffer, <const uint8_t *> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
                                          now_us)
                jlog_unlock(&page.append_lock)
                jlog_wake(page)
                if sequence >= 0:
                    if page.sync_mode != JLOG_SYNC_APPEND:
                        return jlog_number(sequence)
                    return self.durable(self.attachment, jlog_number(sequence), None)
        if timestamp is not None:
            timestamp_us = time_us_of(timestamp, timestamp_us)
        if id is not None:
            return self.append_with_id(value, key, headers, timestamp_us, id, True)
        return self.append_slowly(value, key, headers, timestamp_us, True)

    def _append_unsynced(self, value, key, headers, timestamp_us, id, timestamp):
        """Appends one record as append does, and does not wait for a sync, whatever the journal's `sync` is."""
        if timestamp is not None:
            timestamp_us = time_us_of(timestamp, timestamp_us)
        if id is not None:
            return self.append_with_id(value, key, headers, timestamp_us, id, False)
        return self.append_slowly(value, key, headers, timestamp_us, False)

    cdef object append_with_id(self, value, key, headers, timestamp_us, id, bint waits):
        """Appends a record whose id is not known yet, or finds the one that has it. `waits`: as for run_append()."""
        cdef Deadline deadline = self.deadline()
        cdef Attachment attachment
        self.ensure_open()
        sequence = self._append_or_find(value, key, headers, timestamp_us, as_id(id), deadline)
        attachment = self.opened()
        if waits and attachment.process.buffer.page.sync_mode == JLOG_SYNC_APPEND:
            return self.durable(attachment, sequence, deadline)
        return sequence

    def _append_once(self, value, key, headers, timestamp_us, bytes id not None, uint64_t known_end,
                     Deadline deadline not None):
        """Appends a record with an id, which no record before `known_end` has. Returns its sequence; None, with nothing
        appended, if records follow there that the caller has to look at first. Does not wait for a sync."""
        cdef EncodedRecords body = EncodedRecords()
        cdef Attachment attachment
        cdef Append append
        body.add(value, key, headers, timestamp_us)
        memset(&append, 0, sizeof(append))
        append.id, append.id_bytes = <const uint8_t *> PyBytes_AS_STRING(id), <uint32_t> PyBytes_GET_SIZE(id)
        append.known_end = known_end
        attachment = self.opened()
        attachment.pin()
        try:
            return self.extend_pinned(attachment, body, None, &append, deadline, False)
        finally:
            attachment.unpin()

    cdef object durable(self, Attachment attachment, sequence, Deadline deadline):
        """Syncs the records that a call with sync="append" has appended from `sequence` on. Returns `sequence`. Where there is
        no memory for the sync, or for the text of its error, it tries again: a MemoryError says that nothing was appended.
        `deadline`: None begins one."""
        while True:
            try:
                try:
                    if deadline is None:
                        deadline = self.deadline()
                    attachment.make_durable(deadline)
                    return sequence
                except (JournalLocked, JournalMoved, OSError) as error:
                    raise not_durable(self.path, error, sequence) from error
            except MemoryError:
                pass
            with nogil:
                jlog_futex_wait(NULL, 0, NO_MEMORY_PAUSE_US)
            PyErr_CheckSignals()

    cdef object append_slowly(self, value, key, headers, timestamp_us, bint waits):
        cdef EncodedRecords body
        cdef int64_t sequence, now_us
        cdef jlog_page *page
        if key is None and headers is None and timestamp_us is None and value is not None:
            return self.extend_values((as_bytes(value, "value"),), None, waits)
        body = EncodedRecords()
        body.add(value, key, headers, timestamp_us)
        self.ensure_open()
        if self.buffered:
            page = self.buffer.page
            now_us = jlog_now_us(&self.clock)
            if jlog_spin_lock(&page.append_lock, self.buffer.owner, QUICK_TURNS):
                sequence = jlog_put_record(self.buffer, body.data, body.size, now_us)
                jlog_unlock(&page.append_lock)
                jlog_wake(page)
                if sequence >= 0:
                    if not waits or page.sync_mode != JLOG_SYNC_APPEND:
                        return jlog_number(sequence)
                    return self.durable(self.attachment, jlog_number(sequence), None)
        return self.append_body(body, None, waits)

    def extend(self, values, /, keys=None, headers=None, timestamps_us=None, state=None):
        """Appends all of `values`, or none: readers see them together, and a crash leaves all or nothing. Returns the
        sequence of the first record.

        values: Iterable[Buffer | None] | Iterable[_Record]; at most 1.5 GiB together. Records are such as jlog.NewRecord.
        keys: Iterable[Buffer | None] | None; one entry for each value, as append takes it. So with the next two.
        headers: Iterable[_Headers | None] | None.
        timestamps_us: Iterable[int | None] | None.
        state: Mapping[bytes, Buffer | None] | None; small named values that are stored atomically with the records.
            Journal.state() reads them. A value of None deletes the key. The whole state has at most 64 KiB, keys included.
        Without values and state nothing is written. Raises as append does; ValueError for columns of unequal length.
        """
        cdef tuple items = tuple(column_of("values", values, "an iterable of values; append() takes one alone"))
        cdef EncodedRecords body
        self.ensure_open()
        if keys is None and headers is None and timestamps_us is None:
            if items and type(items[0]) is not bytes and hasattr(items[0], "timestamp_us"):
                body = EncodedRecords()
                body.add_columns(*columns_of_records(items))
                return self.append_body(body, state, True)
            plain = plain_items(items)
            if plain is not None:
                return self.extend_values(plain, state, True)
        body = EncodedRecords()
        body.add_columns(items, keys, headers, timestamps_us)
        return self.append_body(body, state, True)

    def extend_arrow(self, data, /, *, state=None):
        """Appends records from Arrow data, all or none, without making a Python object for each. Returns the sequence of the
        first record.

        data: any object with __arrow_c_stream__ or __arrow_c_array__, of pyarrow, polars, DuckDB, pandas or jlog. An array of
            values, which are binary or string, each also as large, as view or in a dictionary; null is None. Or a table with
            the columns of RecordBatch.to_arrow(), of which only `value` is required. `key` has one of the same types.
            `headers` is list<struct<key: string, value: binary>>, or a map, or the large types. `timestamp` has a time zone
            and any unit; nanoseconds are rounded down, and null is the clock's time. `sequence` is ignored.
        state: as extend takes it.
        Raises as extend does, and also, with nothing appended: TypeError for other types; ValueError for a column that records
        do not have, a timestamp without a time zone or out of range, a header or a header's key that is null, and an array
        whose offsets point outside its buffers; RecordTooLarge above 1.5 GiB.
        """
        self.ensure_open()
        return self.append_body(body_of_arrow(data), state, True)

    cdef object extend_values(self, tuple items, state, bint waits):
        """Appends values without keys, headers and timestamps. They are encoded under the lock, straight into the buffer."""
        cdef Attachment attachment
        cdef Append append
        cdef uint64_t total = 0
        if state:
            return self.append_body(EncodedRecords.of_values(items), state, waits)
        if not items:
            return self.next_sequence
        for value in items:
            total += <uint64_t> JLOG_SHORT_BYTES + PyBytes_GET_SIZE(value)
            if PyBytes_GET_SIZE(value) > JLOG_VALUE_BYTES_MAX:
                raise too_large(len(value))
        attachment = self.opened()
        if not self.buffered or total + JLOG_BASE_BYTES > self.buffer.page.capacity:
            return self.append_body(EncodedRecords.of_values(items), None, waits)
        memset(&append, 0, sizeof(append))
        append.new.head.kind = APPEND
        append.items = <void *> items
        append.new.records.bytes = total
        append.new.records.count = len(items)
        append.new.records.explicit_max_us = INT64_MIN
        # Pinned, because the next steps let other threads run, and one of them may close this writer.
        attachment.pin()
        try:
            return self.run_append(attachment, &append, self.deadline(), waits)
        finally:
            attachment.unpin()

    cdef object run_append(self, Attachment attachment, Append *append, Deadline deadline, bint waits):
        """Carries the append through. Returns the first sequence; None if NEEDS_IDS stopped it. `waits`: whether it waits for a
        sync where the journal syncs each append."""
        if attachment.operations.run(&append.new.head, deadline) != DONE:
            return None
        sequence = jlog_number(append.new.sequence)
        jlog_make_spare_numbers()
        if not waits or attachment.process.buffer.page.sync_mode != JLOG_SYNC_APPEND:
            return sequence
        return self.durable(attachment, sequence, deadline)

    cdef object append_body(self, EncodedRecords body, state, bint waits):
        cdef Attachment attachment = self.opened()
        cdef Append append
        body.take()
        if not state and body.count == 0:
            return self.next_sequence
        # Pinned, because the next steps let other threads run, and one of them may close this writer.
        attachment.pin()
        try:
            memset(&append, 0, sizeof(append))
            return self.extend_pinned(attachment, body, state, &append, self.deadline(), waits)
        finally:
            attachment.unpin()

    cdef object extend_pinned(self, Attachment attachment, EncodedRecords body, state, Append *append, Deadline deadline,
                              bint waits):
        cdef jlog_page *page = attachment.process.buffer.page
        append.new.head.kind = APPEND
        append.body = <void *> body
        if state:
            state = add_state(body, state)
            append.new.state = <void *> state
            attachment.operations.state.check(&append.new)
        # State goes into a block of its own, so that a roll finds it by the block's header.
        if not self.buffered or body.has_state or body.size + JLOG_BASE_BYTES > page.capacity:
            make_direct(append, page.codec)
        else:
            body.describe(&append.new.records)
        return self.run_append(attachment, append, deadline, waits)

    # --- Flushing and closing -----------------------------------------------------------------------------------

    def flush(self):
        """Writes the records of the pre-commit buffer to the segment file. Records need no flush: in the buffer too, readers
        see them, and they survive the death of any process."""
        self.opened().flush(self.deadline())

    def sync(self):
        """Returns when every record that was appended before survives a power loss. It flushes, and then waits for an
        fdatasync, which concurrent callers share. Raises OSError if the fdatasync failed: then every writer raises until all
        have closed and one opens the journal anew."""
        self.opened().sync(self.deadline())

    def roll(self):
        """Seals the open segment and opens the next one. Does nothing if the open segment has no record yet."""
        self.opened().roll(self.deadline())

    def close(self):
        """Flushes and closes the writer. The last writer of all processes cuts off the preallocated end of the segment. A
        second close does nothing. Raises JournalLocked if the flush could not be done within lock_timeout: the writer is closed
        all the same, and no record is lost."""
        if self.token == CLOSED:
            return
        cdef Attachment attachment
        cdef Deadline deadline
        in_child = self.is_in_child()
        deadline = self.deadline()
        self.token = CLOSED
        attachment, self.attachment = self.attachment, None
        if in_child:
            return
        try:
            if attachment.process.buffer.page.sync_error == 0:
                attachment.flush(deadline)
            attachment.process.check()
        finally:
            attachment.give_writers(self.exclusive)
            attachment.leave(True, deadline)

    def __enter__(self):
        self.ensure_open()
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def __del__(self):
        if self.attachment is not None:
            # Not self.close: a call that waits must not keep this object alive while it is being collected.
            in_child = self.is_in_child()
            attachment, self.attachment, self.token = self.attachment, None, CLOSED
            if not in_child:
                (<Attachment> attachment).give_writers(self.exclusive)
                self.leaving.begin(attachment)

    @property
    def next_sequence(self):
        """The sequence that the next record gets, if no other writer comes first."""
        self.ensure_open()
        return self.buffer.page.next_sequence

    @property
    def precommit(self):
        """Bytes of the pre-commit buffer that this writer uses; 0 if it bypasses the buffer."""
        self.ensure_open()
        return self.buffer.page.capacity if self.buffered else 0


def ingest(Writer writer not None, path, pieces, /, state=None):
    """Turns the file that a SegmentBuilder has written into the writer's newest segment, without copying it. Readers see all of
    its records together, and with them the new `state`, as Writer.extend takes it. Returns the sequence of the first record.
    Returns None, and changes nothing, if the file cannot be ingested: then read_piece and extend_body append the records.

    path: a file on the journal's file system. It keeps this name, and gets a second one in the journal. The builder is
        closed, and the file must not be changed any more.
    pieces: the builder's `pieces`.
    The file cannot be ingested while the newest segment has no record, or while other writers keep appending; if the state
    does not fit into the room that the file has for it (64 KiB); if limit_bytes would be exceeded; if the file belongs to
    another user, or has other names, because it was ingested before for example.
    The file itself is synced. That it belongs to the journal survives a power loss only after sync(), as with appended
    records. Raises as extend does; ValueError for pieces that are not the builder's; JournalError if the file was cut off.
    """
    cdef Attachment attachment
    cdef Deadline deadline = writer.deadline()
    cdef int64_t first
    entries = state_of(state or {})
    attachment = writer.opened()
    attachment.pin()
    try:
        first = ingest_file(attachment.operations, os.fspath(path), pieces, entries, deadline)
        if first == NOT_INGESTED:
            return None
        sequence = jlog_number(first)
        if attachment.process.buffer.page.sync_mode != JLOG_SYNC_APPEND:
            return sequence
        return writer.durable(attachment, sequence, deadline)
    finally:
        attachment.unpin()


def extend_body(Writer writer not None, EncodedRecords body not None, state=None):
    """Appends the records of a body, all or none, with the `state`, as Writer.extend does. Returns the sequence of the first
    record. A body can be appended only once."""
    return writer.append_body(body, state, True)


def not_durable(str path not None, error not None, sequence):
    """Returns the error of a call whose records are appended from `sequence` on, and whose sync has failed with `error`."""
    if isinstance(error, JournalLocked):
        return JournalLocked(f"{path}: this call appended its records, from sequence {sequence} on, and they can be "
                             "read, but they are not durable yet: another process held the append lock, or was writing a "
                             "block, for the whole lock_timeout. If that process is stopped, continue or end it. Then call "
                             "sync(); do not append the records again")
    if isinstance(error, JournalMoved):
        return JournalMoved(f"{error} (this call appended its records, from sequence {sequence} on, and they can be read in "
                            "the journal that was moved, if it still exists, but they may not be durable)")
    if not isinstance(error, OSError):
        kind = JournalClosed if isinstance(error, JournalClosed) else JournalError
        return kind(f"{error} (this call appended its records, from sequence {sequence} on, and they can be read, but they "
                    "may not be durable)")
    return OSError(error.errno, f"{error.strerror} (this call appended its records, from sequence {sequence} on, and "
                                "they can be read, but they are not durable: do not append them again)", error.filename)


def with_own_append(cls):
    """Gives a subclass the compiled append as a method of its own. CPython has a fast path for the call of a compiled method,
    and takes it only where the object is of exactly the method's class: an inherited append costs 150 instructions more."""
    cdef PyMethodDef *method = (<PyTypeObject *> Writer).tp_methods
    while strcmp(method.ml_name, b"append") != 0:
        method += 1
    cls.append = PyDescr_NewMethod(<PyTypeObject *> cls, method)
    return cls


cdef bytes as_id(id):
    found = as_bytes(id, "id")
    if not 1 <= len(found) <= JLOG_ID_BYTES_MAX:
        raise ValueError(f"an id has 1 to {JLOG_ID_BYTES_MAX} bytes, not {len(found)}; take a digest of a longer one")
    return found


cdef list columns_of_records(tuple items):
    """Returns values, keys, headers and times of records."""
    try:
        return [tuple([item.value for item in items]), [item.key for item in items], [item.headers for item in items],
                [item.timestamp_us for item in items]]
    except AttributeError:
        raise TypeError("values must be records alone, or bytes alone") from None


cdef tuple plain_items(tuple items):
    """Returns all values as bytes; None if one of them is None, which only the long form can hold."""
    cdef bint exact = True
    for value in items:
        if type(value) is not bytes:
            exact = False
            if value is None:
                return None
    return items if exact else tuple([as_bytes(value, "value") for value in items])


cdef dict add_state(EncodedRecords body, state):
    """Adds a state record for each entry to the body. Returns the entries as bytes."""
    entries = state_of(state)
    for key, value in entries.items():
        body.add_state(key, value)
    return entries


cdef dict state_of(state):
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be a dict of bytes, not {state!r:.100}")
    return {as_bytes(key, "a key of state"): None if value is None else as_bytes(value, "a value of state")
            for key, value in state.items()}
