"""Measures jlog beside a plain file, for `jlogtool bench`; the contests of a checkout's `bench/` are held by the same rules."""
