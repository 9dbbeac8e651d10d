"""Measuring jlog beside a plain file: what `jlogtool bench` and the repository's own benchmarks share.

The package imports nothing of it by itself.
"""
