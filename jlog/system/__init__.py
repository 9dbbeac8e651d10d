"""Files and file systems: files that are written as a whole, and file systems that can hold a journal."""
