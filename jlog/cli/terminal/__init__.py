"""What a terminal shows: lines, tables, progress, and the screen of `jlogtool top`."""
