"""Moves records from a source to a sink, exactly once where both ends can."""
