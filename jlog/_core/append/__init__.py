"""Writing: the append lock, the open block, closing it, the next segment, syncing."""
