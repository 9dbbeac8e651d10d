from jlog._core.sync cimport Syncer

cdef class Attachment(Syncer):
    cdef int exclusive_writers
    cdef bint first  # of all processes
    cdef bint mended  # files after a failed sync

    cdef change_meta(self, capacity)
    cdef recover(self)
    cdef forget_derived(self, bounds)
    cdef finish_dead(self)
    cdef map_buffer(self)
    cdef enlarge(self, capacity)
    cdef take_slot(self)
    cdef note_end(self)
