from jlog._core.buffer.page cimport jlog_page, jlog_slot

cdef bytes stored_body(int fd, const jlog_page *page, const jlog_slot *slot)
