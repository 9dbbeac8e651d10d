"""Work shared out: one subscriber, many workers."""
