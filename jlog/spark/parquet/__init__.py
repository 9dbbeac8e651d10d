"""The parts of the pipeline: its inputs, the columns of records, and the Parquet files that it writes."""
