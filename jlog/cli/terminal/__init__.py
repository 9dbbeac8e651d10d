"""Output on a terminal: lines, tables, progress, and the display of `jlogtool top`."""
