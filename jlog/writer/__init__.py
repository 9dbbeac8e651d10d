"""Appending: `Writer`, which threads, processes and coroutines use at once."""

from jlog.writer.writer import Writer

__all__ = ["Writer"]
