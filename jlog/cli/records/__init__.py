"""Records between a journal and a stream of bytes."""
