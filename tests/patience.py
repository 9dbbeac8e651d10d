"""How long the tests wait for what comes at once on a machine that has nothing else to do."""

HUNG_SECONDS = 250.0  # guards against hanging only, and ends before pytest's own limit
