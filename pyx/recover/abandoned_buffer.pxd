from jlog._core.buffer.page cimport jlog_slot

cdef object make_body(const jlog_slot *slot, bytes body)
