cpdef int warn(path, what, error) except -1
