"""Import and export of journals of the C library libjlog: records, times and subscribers, in both directions.

Frozen: the room follows a format that does not change any more. It gets corrections, and no new features.
"""

from jlog.libjlog.exporting import export_journal
from jlog.libjlog.importing import Import, ImportResult

__all__ = ["Import", "ImportResult", "export_journal"]
