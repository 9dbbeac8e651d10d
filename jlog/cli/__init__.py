"""The command line, `jlogtool`. It uses nothing but the public API."""

from jlog.cli.tool import main

__all__ = ["main"]
