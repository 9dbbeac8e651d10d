"""Questions to a journal: a lazy view for Arrow, Polars, DuckDB and pandas, and what of a question reading can take over."""
