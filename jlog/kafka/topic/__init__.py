"""Reads and writes a topic as a journal."""
