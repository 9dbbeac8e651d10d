"""What jlog asks of the operating system: files that are written whole, and file systems that can hold a journal."""
