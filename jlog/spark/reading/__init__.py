"""The source: reads journals as batches and as streams."""
