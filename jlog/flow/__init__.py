"""Records moved from one place to another, exactly once where both ends can: a source, a sink, and what runs them."""
