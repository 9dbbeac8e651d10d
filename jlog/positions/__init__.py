"""Subscribers and checkpoints: durable positions with a name, and the sequence that "begin", a time or a name means."""
