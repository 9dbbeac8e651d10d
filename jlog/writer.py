"""Writing a journal."""

from jlog._core.write.writer import Writer

__all__ = ["Writer"]
