"""The parts of a journal's directory: identity and options, segments, gaps in the sequences, and damage."""
