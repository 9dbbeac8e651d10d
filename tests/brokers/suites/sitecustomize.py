"""Registers jlog:// in every program that the suites start: they import nothing of jlog."""

import jlog.celery  # noqa: F401
