/* The bytes objects that an iterator handed out last, of which one that the caller has let go of is filled anew.
 *
 * In `for value in values` the loop holds the last object while it asks for the next: so two are kept, and the one before
 * the last is nobody's but ours. CPython's zip and enumerate use their tuples again in the same way. It saves a third of
 * what a value of 100 bytes costs. */
#ifndef JLOG_RECENT_H
#define JLOG_RECENT_H

#include <Python.h>
#include <string.h>

#define JLOG_RECENT_BYTES_MIN 2                          /* CPython shares the objects of the shorter ones */
#define JLOG_RECENT_BYTES_MAX 4096                       /* longer ones are not held back */
#define JLOG_RECENT_WASTE_MAX 16                         /* about what the allocator rounds up to */

struct jlog_recent {
    PyObject *objects[2];
    Py_ssize_t room[2];
    unsigned last;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline void jlog_forget_hash(PyObject *bytes)
{
    ((PyBytesObject *)bytes)->ob_shash = -1;
}
#pragma GCC diagnostic pop

/* Whether nobody else has it. Where threads run without the GIL a count of one does not say so. */
static inline int jlog_is_ours(PyObject *object)
{
#ifdef Py_GIL_DISABLED
    (void)object;
    return 0;
#else
    return Py_REFCNT(object) == 1;
#endif
}

/* A new reference, NULL without memory. With the GIL. */
static inline PyObject *jlog_recent_bytes(struct jlog_recent *recent, const char *data, Py_ssize_t size)
{
    const unsigned slot = recent->last ^= 1;
    PyObject *found = recent->objects[slot];

    if (found != NULL && jlog_is_ours(found) && size <= recent->room[slot]
        && recent->room[slot] - size < JLOG_RECENT_WASTE_MAX && size >= JLOG_RECENT_BYTES_MIN) {
        Py_SET_SIZE((PyVarObject *)found, size);
        jlog_forget_hash(found);
        memcpy(PyBytes_AS_STRING(found), data, (size_t)size);
        PyBytes_AS_STRING(found)[size] = '\0';
        Py_INCREF(found);
        return found;
    }
    Py_CLEAR(recent->objects[slot]);
    found = PyBytes_FromStringAndSize(data, size);
    if (found != NULL && size >= JLOG_RECENT_BYTES_MIN && size <= JLOG_RECENT_BYTES_MAX) {
        Py_INCREF(found);
        recent->objects[slot] = found;
        recent->room[slot] = size;
    }
    return found;
}

static inline void jlog_recent_clear(struct jlog_recent *recent)
{
    Py_CLEAR(recent->objects[0]);
    Py_CLEAR(recent->objects[1]);
}

#endif
