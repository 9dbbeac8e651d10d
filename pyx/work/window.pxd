from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.system.file cimport jlog_identity
from jlog._core.system.lock cimport LockFile

cdef extern from "work/window.h" nogil:
    enum:
        JLOG_ENTRIES_HEADER_BYTES
        JLOG_NO_ENTRY
        JLOG_WINDOW_LAYOUT
        JLOG_WINDOW_STEP
        JLOG_WORKERS_MAX
        JLOG_POSITION_STEP
        JLOG_FINISHED_MAX
    const char *JLOG_WINDOW_MAGIC

    struct jlog_entry:
        uint64_t number
        int64_t until_us
        uint64_t stamp
        uint32_t owner
        uint32_t failures
        uint32_t attempts
        uint32_t key_hash
        uint32_t deaths
        uint32_t later

    struct jlog_worker_slot:
        uint64_t pid
        uint32_t taken
        uint32_t left

    struct jlog_queue:
        uint32_t first

    struct jlog_logged:
        uint64_t next
        uint64_t copy_inode
        uint64_t copy_bytes
        uint64_t file_bytes
        uint64_t numbers[4096]

    struct jlog_window:
        uint8_t magic[8]
        uint32_t layout
        uint32_t is_ready
        uint8_t uuid[16]
        uint8_t boot_id[16]
        uint64_t device
        uint64_t inode
        uint32_t limit
        uint32_t max_attempts
        uint32_t key_order
        uint32_t revision
        int64_t backoff_first_us
        int64_t backoff_most_us
        uint32_t lock
        uint64_t next
        uint64_t oldest
        uint64_t stored
        uint64_t generation
        uint64_t finishes
        uint64_t synced
        uint64_t takes
        uint64_t failures
        uint64_t rejections
        uint64_t deaths
        uint32_t capacity
        uint32_t unrepaired
        uint32_t used
        uint32_t delayed
        uint32_t first
        uint32_t free
        jlog_queue ready
        uint32_t heap_count
        uint32_t bell
        uint32_t asleep
        uint32_t scout
        int64_t alarm_us
        int64_t looked_us
        jlog_worker_slot slots[1024]
        jlog_logged logged

    struct jlog_taken:
        uint64_t sequence
        uint64_t stamp
        const uint8_t *record
        uint32_t at
        uint32_t attempt
        uint32_t failures
        bint is_exhausted

    struct jlog_passage:
        const uint8_t *at
        const uint8_t *end
        uint64_t sequence

    jlog_entry *jlog_entry_at(jlog_window *window, uint32_t at)
    int64_t jlog_heap_time(jlog_window *window, uint32_t place)
    bint jlog_window_is_sound(const jlog_window *window)
    size_t jlog_window_bytes(uint64_t capacity)
    uint64_t jlog_window_oldest(jlog_window *window)
    uint32_t jlog_window_passed_since(jlog_window *window, uint32_t *first)
    bint jlog_window_has_room(const jlog_window *window)
    enum:
        JLOG_HAS_LEFT
        JLOG_HAS_DROPPED

    void jlog_slot_note(jlog_window *window, uint32_t owner, uint32_t bit)
    void jlog_window_release_dropped(jlog_window *window, uint32_t owner)
    void jlog_entry_mark(jlog_entry *entry, uint32_t owner, uint64_t stamp, uint32_t mark)
    int64_t jlog_backoff_us(const jlog_window *window, uint32_t failures)
    uint32_t jlog_window_bury(jlog_window *window, uint32_t owner, int64_t now_us)
    int jlog_window_rebuild(jlog_window *window, void *found)
    int jlog_window_drop_before(jlog_window *window, uint64_t sequence, bint keep_taken)
    uint32_t jlog_window_pass(jlog_window *window, uint64_t sequence, uint32_t key_hash)
    uint32_t jlog_window_take_again(jlog_window *window, uint32_t owner, int64_t now_us, int64_t lease_end_us,
                                    jlog_taken *taken, uint32_t most)
    uint32_t jlog_window_take_new(jlog_window *window, uint32_t owner, int64_t lease_end_us, jlog_passage *passage,
                                  jlog_taken *taken, uint32_t most)
    int jlog_window_seize(jlog_window *window, uint64_t sequence, uint32_t owner, jlog_taken *taken)
    jlog_entry *jlog_window_held(jlog_window *window, uint32_t at, uint64_t sequence, uint64_t stamp)
    void jlog_entry_return(jlog_window *window, uint32_t at, int64_t until_us, bint failed)
    void jlog_entry_drop(jlog_window *window, uint32_t at)
    void jlog_entry_finish(jlog_window *window, uint32_t at)
    void jlog_heap_add(jlog_window *window, uint32_t at)
    void jlog_heap_remove(jlog_window *window, uint32_t at)
    void jlog_window_ring(jlog_window *window)
    void jlog_window_ring_all(jlog_window *window)


cdef struct jlog_stored:
    uint64_t sequence
    uint32_t key_hash
    uint32_t attempts
    uint32_t failures


cdef class Window:
    cdef readonly object path
    cdef LockFile locks  # of the subscriber's file
    cdef bytes uuid
    cdef uint64_t epoch
    cdef int fd
    cdef jlog_identity file
    cdef jlog_window *page
    cdef size_t mapped_bytes
    cdef jlog_window *earlier[15]  # mappings before the file grew beyond them: threads may sleep on their words
    cdef size_t earlier_bytes[15]
    cdef int earlier_count
    cdef uint32_t capacity  # of the file, as far as it was checked
    cdef uint32_t owner  # our worker slot + 1
    cdef object lock_timeout
    cdef uint32_t burying  # slot + 1 of the dead worker whose byte a thread of this worker holds
    cdef uint64_t written_finishes  # how many there were when this worker wrote the committed position last
    cdef int64_t looked_us  # when this worker looked for dead ones last

    cpdef void leave(self) noexcept
    cdef void shut(self) noexcept
    cdef int map(self, uint64_t capacity) noexcept
    cdef int map_more(self, uint64_t capacity) noexcept
    cdef int check(self) except -1
    cdef int lock(self) except -1
    cdef bint lock_at_once(self) noexcept
    cdef void unlock(self) noexcept
    cdef int lock_slowly(self) except -1
    cdef int put_in_order(self) except -1
    cdef uint32_t store_from(self, uint32_t at, uint32_t most, jlog_stored *target) noexcept
    cdef int repair(self) noexcept
    cdef int repair_alone(self, why) except -1
    cdef int take_over(self, uint32_t dead) noexcept
    cdef int grow(self) noexcept
    cdef int move_position(self, bint at_once) noexcept
    cdef bint should_look(self, int64_t now_us, int64_t after_us) noexcept
    cdef int release_dropped(self, uint32_t owner) except -1
    cdef bint bury_the_dead(self, int64_t now_us) except -1

cdef int64_t boot_us() noexcept
