"""The care of a journal: retention, verifying, backups and statistics."""
