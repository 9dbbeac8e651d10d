"""What the directory of a journal holds: its identity and options, its segments, the gaps in its numbers, its damage."""
