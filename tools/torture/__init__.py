"""Runs everything at once on journals of its own, and checks the result against the acknowledgements: `tools/torture.py`.

The parent plans faults, starts children and judges. Each child plays one role, and writes its acknowledgements and observations
into files, without jlog. A *life* is a set of fresh journals with some *rounds* on them. After each round all children stand
still, and the judge reads the journals with jlog and with tests/oracle.py.
"""
