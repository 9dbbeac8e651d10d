"""Where a journal ends after a crash, and how the next writer makes it whole."""
