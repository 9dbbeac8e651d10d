"""The exception for a promise that does not hold."""

from __future__ import annotations


class Wrong(Exception):
    """A promise does not hold."""
