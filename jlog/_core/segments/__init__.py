"""Segment files, their blocks and their index."""
