"""The parts of the pipeline: what it reads, how records become columns, and the Parquet files that it writes."""
