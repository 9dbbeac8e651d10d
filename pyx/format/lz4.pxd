cdef bytes compressed_or_none(raw)
