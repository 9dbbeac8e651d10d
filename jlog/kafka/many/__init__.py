"""Many mirrors and captures out of one file, each in a process of its own."""
