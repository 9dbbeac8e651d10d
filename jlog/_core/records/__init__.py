"""Records as Python objects and as Arrow columns."""
