"""Tables that take each batch of a query once: directories of Parquet files."""
