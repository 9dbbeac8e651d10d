"""Turns positions in a journal into positions in the topic beside it, and back, so that a reader can move between the two."""
