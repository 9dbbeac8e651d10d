"""Journals of the C library libjlog: their records, times and subscribers come into a journal, and go back."""

from jlog.libjlog.exporting import export_journal
from jlog.libjlog.importing import Import, ImportResult

__all__ = ["Import", "ImportResult", "export_journal"]
