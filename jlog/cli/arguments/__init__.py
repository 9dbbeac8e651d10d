"""What may stand on the command line, and what it means to the API."""
