"""The operating system, the processor and the clock."""
