# Mends what Cython has generated: cmake -DFILES="a.c;b.c" -P mend.cmake
#
# Without memory two functions of Cython 3.3 go wrong. A Cython whose functions read otherwise is left alone.
#
# - Where the list of a comprehension cannot grow, one function frees the item, and so does its caller. From then on the memory of
#   an object that still is in use is given out again.
# - CPython 3.11 loses the exception of a Python function that has no memory for its frame. A compiled caller that catches
#   exceptions then looks at one that is not there, and crashes. It gets a MemoryError.
set(appends "    int result = PyList_Append(list, x);\n")
set(calls "                return f(func, args, nargsf, NULL);\n")
string(CONCAT checked_calls
       "                PyObject *result = f(func, args, nargsf, NULL);\n"
       "                if (unlikely(!result) && !PyErr_Occurred()) PyErr_NoMemory();\n"
       "                return result;\n")
foreach(name IN LISTS FILES)
  file(READ "${name}" found)
  string(REPLACE "${appends}    Py_DECREF(x);\n"
                 "${appends}    if (result == 0) Py_DECREF(x); /* else the caller does it */\n" mended "${found}")
  string(REPLACE "${calls}" "${checked_calls}" mended "${mended}")
  if(NOT mended STREQUAL found)
    file(WRITE "${name}" "${mended}")
  endif()
endforeach()
