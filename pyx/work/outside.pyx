"""What the window of a shared subscriber states, for processes that are not its workers."""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jlog._core.system.lock cimport LockFile
from jlog._core.work.window cimport JLOG_WINDOW_LAYOUT, JLOG_WINDOW_MAGIC, JLOG_WORKERS_MAX, jlog_window

from jlog._core.buffer.precommit import boot_id
from jlog._core.work.window import SLOT_BYTE, window_path
from jlog.errors import JournalError
from jlog.system.files import open_file, read_whole


def look(path not None, bytes uuid not None, str name not None, LockFile locks not None):
    """Returns what the window's header states, as a dict; None if there is no window of this journal and this boot. Needs no
    right to write. Others may change the window meanwhile."""
    cdef jlog_window header
    cdef bytes found
    cdef uint32_t slot
    try:
        file = open_file(window_path(path, name))
    except (OSError, JournalError):
        return None
    try:
        status = os.fstat(file.fd)
        found = read_whole(file.fd, sizeof(header), 0)
        if len(found) < <Py_ssize_t> sizeof(header):
            return None
        memcpy(&header, <const uint8_t *> found, sizeof(header))
        if (memcmp(header.magic, JLOG_WINDOW_MAGIC, 8) != 0 or header.layout != JLOG_WINDOW_LAYOUT or not header.is_ready
                or memcmp(header.uuid, <const uint8_t *> uuid, 16) != 0 or header.inode != <uint64_t> status.st_ino
                or header.device != <uint64_t> status.st_dev):
            return None
        workers = [{"pid": header.slots[slot].pid, "taken": header.slots[slot].taken} for slot in range(JLOG_WORKERS_MAX)
                   if header.slots[slot].pid and locks.is_held(SLOT_BYTE + slot)]
        if not workers and found[32:48] != boot_id():
            return None
        return {"oldest": header.oldest, "stored": header.stored, "next": header.next, "used": header.used,
                "delayed": header.delayed, "limit": header.limit, "workers": workers, "takes": header.takes,
                "finishes": header.finishes, "synced": header.synced, "failures": header.failures,
                "rejections": header.rejections, "deaths": header.deaths}
    finally:
        file.close()
