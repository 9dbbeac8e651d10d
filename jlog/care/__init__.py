"""Looking after a journal: retention, verifying, backups, statistics."""
