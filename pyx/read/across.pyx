"""Iterates through several cursors, one after the other. Every step is compiled, so that no exception of a signal's handler
comes between a record and the caller."""

from jlog._core.read.position cimport OWED, ReadPosition, begin_use, end_use, is_own

from jlog.errors import CorruptJournal, PositionLost

cdef object NOTHING = object()


cdef class Entering:
    """The present cursor, and what hands out its records.

    position: knows the cursor at which it stands, `current`, and goes on to the next one.
    """

    cdef ReadPosition position
    cdef object kind
    cdef object current
    cdef object items

    cdef int enter(self) except -1:
        current = self.position.current
        if self.current is not current:
            self.items = self.position.items_of(self.kind)
            self.current = current
        return 0


cdef class Across(Entering):
    """Iterates over what `kind` hands out of each Cursor, up to the end as it is then, or up to `end`. It goes on after an
    error."""

    cdef object end

    def __init__(self, ReadPosition position not None, kind, end=None):
        self.position, self.kind, self.end = position, kind, end

    def __iter__(self):
        return self

    def __next__(self):
        begin_use(self.position)
        try:
            while True:
                try:
                    self.enter()
                    return next(self.items)
                except StopIteration:
                    if self.end is not None and self.position.where() >= self.end:
                        raise
                    if not self.move(self.position.advance, self.end):
                        raise
                except PositionLost as lost:
                    self.move(self.position.back_to_archive, lost)
                except CorruptJournal as error:
                    if not self.move(self.position.see_whole):
                        raise self.position.named(error) from None
        finally:
            end_use(self.position)

    cdef object move(self, call, argument=NOTHING):
        """Makes a call that moves the position. If it is interrupted, the next step goes back."""
        self.position.owe()
        try:
            found = call() if argument is NOTHING else call(argument)
        except BaseException as error:
            if is_own(error):
                self.position.use &= ~OWED
            raise
        self.position.use &= ~OWED
        return found


cdef class AsyncAcross(Entering):
    """The same for an event loop, which runs on while the next cursor is prepared: a subclass makes such a call in a thread."""

    def __init__(self, ReadPosition position not None, kind):
        self.position, self.kind = position, kind

    def __aiter__(self):
        return self

    async def __anext__(self):
        while True:
            begin_use(self.position)
            try:
                self.enter()
            finally:
                end_use(self.position)
            ended = lost = damage = None
            try:
                return await self.items.__anext__()
            except StopAsyncIteration as error:
                ended = error
            except PositionLost as error:
                lost = error
            except CorruptJournal as error:
                damage = error
            if lost is not None:
                await self.apart(self.position.back_to_archive, lost)
            elif ended is not None and not await self.apart(self.position.advance, None):
                raise StopAsyncIteration
            elif damage is not None and not await self.apart(self.position.see_whole):
                raise self.position.named(damage)

    async def apart(self, call, *arguments):
        """Makes a call that moves the position in a thread. Nobody else moves it meanwhile."""
        cdef ReadPosition position = self.position
        position.hold(True)
        try:
            found = await self._in_thread(call, *arguments)
        except BaseException as error:
            position.let_go(is_own(error))
            raise
        position.let_go(True)
        return found
