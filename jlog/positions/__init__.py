"""Subscribers and checkpoints: named positions, and what a name, a time or "begin" means as a sequence."""
