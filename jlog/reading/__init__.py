"""Reading a journal: its records in order, following, waiting in an event loop, and reading its archive."""
