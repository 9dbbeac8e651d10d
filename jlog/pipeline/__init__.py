"""The data pipeline: journals, or Kafka topics, through Spark into Parquet or tables, each record exactly once."""
