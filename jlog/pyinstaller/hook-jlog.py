"""What PyInstaller does not see in jlog: what compiled modules import, and what is imported by its name at its first use."""

from PyInstaller.utils.hooks import collect_submodules

LATER = ["jlog.archive", "jlog.care.statistics", "jlog.query.scan", "jlog.repair.repair", "jlog.typed", "jlog.working.worker"]

hiddenimports: list[str] = [*collect_submodules("jlog._core"), *collect_submodules("jlog.system"), "jlog.html", *LATER]
