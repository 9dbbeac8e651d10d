/* The int that a call returns whose records are readable already: it must not fail for want of memory. */
#pragma once

#include <Python.h>
#include <stdint.h>

enum { JLOG_SPARE_NUMBERS = 64, JLOG_NUMBER_DIGITS = (63 + PyLong_SHIFT - 1) / PyLong_SHIFT };

/* Ints that nothing else refers to, with room for each number of 63 bits. Protected by the GIL. */
static PyObject *jlog_spare_numbers[JLOG_SPARE_NUMBERS];
static int jlog_spare_count;

/* Makes the spare ints, as many as there is memory for. */
static void jlog_make_spare_numbers(void)
{
    while (jlog_spare_count < JLOG_SPARE_NUMBERS) {
        PyObject *made = PyLong_FromLongLong(INT64_MAX);
        if (made == NULL) {
            PyErr_Clear();
            return;
        }
        jlog_spare_numbers[jlog_spare_count++] = made;
    }
}

/* Returns an int of this number, which is not negative, from the spare ones. */
static PyObject *jlog_spare_number(int64_t number)
{
    PyObject *spare;
    digit *digits;
    Py_ssize_t count = 0;

    if (jlog_spare_count == 0)
        return NULL; /* the MemoryError stands */
    PyErr_Clear();
    spare = jlog_spare_numbers[--jlog_spare_count];
#if PY_VERSION_HEX >= 0x030C0000
    digits = ((PyLongObject *)spare)->long_value.ob_digit;
#else
    digits = ((PyLongObject *)spare)->ob_digit;
#endif
    for (; number != 0; number >>= PyLong_SHIFT)
        digits[count++] = (digit)(number & PyLong_MASK);
#if PY_VERSION_HEX >= 0x030C0000
    if (count == 0)
        digits[0] = 0;
    /* Three bits below the count: two for the sign, where 0 is positive and 1 is zero, and one that is not set here. */
    ((PyLongObject *)spare)->long_value.lv_tag = ((uintptr_t)count << 3) | (count == 0);
#else
    Py_SET_SIZE(spare, count);
#endif
    return spare;
}

static inline PyObject *jlog_number(int64_t number)
{
    PyObject *made = PyLong_FromLongLong(number);
    return made != NULL ? made : jlog_spare_number(number);
}
