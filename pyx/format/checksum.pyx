# cython: autotestdict=False
"""CRC32C, the checksum under everything that a journal holds."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint64_t


cdef extern from "format/checksum.h" nogil:
    uint32_t jlog_crc32c(uint32_t crc, const void *data, size_t bytes)
    void jlog_crc32c_fill_slices()
    uint32_t jlog_crc32c_table(uint32_t crc, const void *data, size_t bytes)
    uint32_t jlog_crc32c_shift(uint32_t crc, uint64_t bytes)
    const char *jlog_crc32c_implementation()


implementation = jlog_crc32c_implementation().decode("ascii")
jlog_crc32c_fill_slices()  # for crc32c_table


def crc32c(data, uint32_t crc=0, /):
    """Returns the CRC32C of the bytes whose CRC32C is `crc`, followed by `data`.

    data: any contiguous bytes-like object. It is borrowed for the call, which holds the GIL.
    crc: the CRC32C of the bytes before `data`; 0 without such bytes.
    Raises TypeError or BufferError for another `data`, and OverflowError for a `crc` outside of 32 bits.

        >>> crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789") == 0xE3069283
        True
    """
    cdef Py_buffer view

    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = jlog_crc32c(crc, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_table(data, uint32_t crc=0, /):
    """Returns the same as `crc32c`, computed by the portable code for CPUs without a CRC instruction."""
    cdef Py_buffer view

    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = jlog_crc32c_table(crc, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_shift(uint32_t crc, uint64_t bytes, /):
    """Returns the part that `crc` contributes to the CRC32C of a longer piece of data in which `bytes` more follow.

    bytes: from 0 to 2**64 - 1. The call takes less than a microsecond for any number.
    Raises OverflowError for an argument outside of its range.

        >>> crc32c(b"12345" + b"6789") == crc32c_shift(crc32c(b"12345"), 4) ^ crc32c(b"6789")
        True
    """
    return jlog_crc32c_shift(crc, bytes)
