"""A standby of a mirrored journal: it has the same records under the same sequences, and can take over."""
