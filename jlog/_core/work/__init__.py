"""Reading blocks and records, in any process."""
