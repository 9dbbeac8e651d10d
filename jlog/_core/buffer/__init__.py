"""The pre-commit buffer: the control page that processes share, and the open block's body."""
