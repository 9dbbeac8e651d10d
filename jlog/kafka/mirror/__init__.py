"""Mirrors journals to topics and captures topics into journals, exactly once."""
