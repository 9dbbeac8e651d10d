"""Everything at once against journals of its own, and checked against what was acknowledged: `tools/torture.py`.

The parent plans faults, starts children and judges; each child does one role and writes down, in files that know nothing
of jlog, what it was told. A *life* is a set of fresh journals and some *rounds* on them; after each round all stand still,
and the judge reads the journals with jlog and with tests/oracle.py.
"""
