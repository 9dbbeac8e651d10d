"""Repair of a damaged journal: the scan of its directory, the plan of the result, and the steps that make it."""
