"""Mirrors, captures and transforms on three brokers, while everything around them changes: `tools/kafka_torture.py`.

A *life* has fresh topics and journals. Programs append to the journals and produce to the topics, and flows move what comes. A
plan by a seed kills and stops brokers and flows, deletes topics and makes them anew, adds partitions, takes rights away, and
lets retention run ahead. A flow may end only as docs/kafka-failures.md says, and is then started again as it says. At the end
of the life everything is moved, and the judge compares both ends of each flow.
"""
