"""Reading a journal: records in order, following it, waiting for it in an event loop, and reading its archive."""
