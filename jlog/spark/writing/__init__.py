"""The sink: turns rows into records of a journal."""
