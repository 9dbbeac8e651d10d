"""The source: journals as batches and as streams."""
