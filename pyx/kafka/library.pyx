"""librdkafka as it is found in a process that has loaded it."""


class LibraryUnavailable(Exception):
    """The library cannot be loaded, lacks a call, or has a version that jlog does not know."""


cdef class Library:
    """The calls of the librdkafka at `path`. It stays loaded until the process ends."""

    def __init__(self, str path not None):
        cdef char problem[1024]
        cdef bytes name = path.encode("utf-8", "surrogateescape")
        if jlog_rdkafka_load(&self.calls, name, problem, sizeof(problem)) < 0:
            raise LibraryUnavailable(problem.decode("utf-8", "replace"))
        self.path = path

    @property
    def version(self):
        """The version of librdkafka, such as 2.6.0."""
        return self.calls.version_str().decode()
