"""Loads records into tables: the pipeline's inputs, the columns of a record and its fields, and each batch."""
