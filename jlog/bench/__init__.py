"""Measures jlog beside a plain file, for `jlogtool bench` and the repository's own benchmarks.

The package itself imports nothing of this.
"""
