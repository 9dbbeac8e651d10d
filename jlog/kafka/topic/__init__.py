"""A topic read and written as a journal is."""
