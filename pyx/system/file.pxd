"""The declarations of file.h, for the Cython sources, and the class and the functions of file.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from "system/file.h" nogil:
    int64_t jlog_read_at(int fd, void *target, size_t bytes, uint64_t offset)
    int jlog_write_at(int fd, const void *source, size_t bytes, uint64_t offset)
    int jlog_write_two_at(int fd, const void *first, size_t first_bytes, const void *second, size_t second_bytes,
                          uint64_t offset)
    int jlog_write_zeros(int fd, uint64_t end)
    int jlog_allocate(int fd, uint64_t start, uint64_t needed, uint64_t wanted, uint64_t *reached)
    int jlog_sync_data(int fd)
    int jlog_sync_directory(int fd)
    void jlog_share(int fd, int directory)
    int jlog_unlink_at(int directory, const char *name)
    int jlog_rename_new(int directory, const char *source, const char *target)
    int jlog_rename_over(int directory, const char *source, const char *target)
    int jlog_inode_at(int directory, const char *name, uint64_t *inode)
    uint64_t jlog_inode(int fd)
    int64_t jlog_file_bytes(int fd)
    bint jlog_has_no_name(int fd)
    int64_t jlog_birth_us(int fd)
    int64_t jlog_changed_us(int fd)
    void jlog_start_writeback(int fd, uint64_t bytes)
    int jlog_try_lock_range(int fd, short kind, uint64_t start, uint64_t bytes)
    int jlog_unlock_range(int fd, uint64_t start, uint64_t bytes)
    int jlog_range_is_held(int fd, uint64_t start, uint64_t bytes)
    int jlog_ofd_lock(int fd, int operation, short kind, uint64_t start, uint64_t bytes)


cdef extern from "system/fork.h" nogil:
    struct jlog_identity:
        uint64_t device
        uint64_t inode


cdef class OpenFile:
    cdef readonly int fd  # -1: it is closed
    cdef jlog_identity file

    cpdef void close(self) noexcept
    cdef int detach(self, jlog_identity *file) noexcept

cdef const uint64_t *process_token() noexcept
cdef int open_at(int directory, const char *name, int flags, unsigned mode) noexcept nogil
cdef int create_at(int directory, const char *name) noexcept nogil
cdef int duplicate(int fd) noexcept nogil
cdef int identify(int fd, jlog_identity *file) noexcept nogil
cdef bint is_file(int fd, const jlog_identity *file) noexcept nogil
cdef void close_file(int fd, const jlog_identity *file) noexcept nogil
cdef void close_descriptor(int fd) noexcept nogil
cdef plain(path)
cdef int check_error(int error, path) except -1
cdef int64_t check_result(int64_t result, path) except -1
