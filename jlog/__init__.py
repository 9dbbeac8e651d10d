"""jlog: a journal of records that many processes write and many subscribers read."""

from jlog._core.writer import Writer
from jlog.options import Retention

__all__ = ["Retention", "Writer"]
