"""Journals mirrored to topics and captured from them, exactly once."""
