"""The sink: rows become records of a journal."""
