# Mends what Cython has generated: cmake -DFILES="a.c;b.c" -P mend.cmake
#
# Where the list of a comprehension has no memory to grow, a function of Cython 3.3 frees the item, and so does its caller. From
# then on the memory of an object that still is in use is given out again. A Cython whose function reads otherwise is left alone.
set(appends "    int result = PyList_Append(list, x);\n")
foreach(name IN LISTS FILES)
  file(READ "${name}" found)
  string(REPLACE "${appends}    Py_DECREF(x);\n"
                 "${appends}    if (result == 0) Py_DECREF(x); /* else the caller does it */\n" mended "${found}")
  if(NOT mended STREQUAL found)
    file(WRITE "${name}" "${mended}")
  endif()
endforeach()
