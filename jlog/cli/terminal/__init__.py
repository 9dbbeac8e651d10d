"""Output on a terminal: lines, tables, progress, and the screen of `jlogtool top`."""
