"""The bytes on disk, and their checksums."""
