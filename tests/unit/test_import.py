"""`import jlog` loads few modules."""

import pytest

import jlog
from elsewhere import python, run_python

# Libraries of the extras and of the command line, slow modules of the standard library, and rooms that most programs do
# without.
KEPT_OUT = """
click rich lz4 portalocker prometheus_client confluent_kafka pyspark pyarrow fsspec numpy pandas
asyncio multiprocessing concurrent.futures socket ssl subprocess tempfile urllib.parse http secrets hashlib shutil
jlog.cli jlog.demo jlog.bench jlog.kafka jlog.spark jlog.metrics jlog.logging jlog.flow.engine
jlog.archive jlog.care.statistics jlog.repair jlog.reading.archived_records jlog.reading.event_loops jlog.reading.async_follow
"""


def test_import_jlog_leaves_out_what_most_programs_do_without():
    program = "import sys; before = set(sys.modules); import jlog; print(*set(sys.modules) - before)"
    done = python(program)
    assert (done.returncode, {*done.stdout.split()} & {*KEPT_OUT.split()}) == (0, set())


def test_every_public_name_is_found_also_those_whose_modules_are_imported_later():
    run_python("""
        assert {*jlog.__all__} <= {*dir(jlog)}
        from jlog import *
        assert (Stats, archive) == (jlog.Stats, jlog.archive)
    """)


def test_a_name_that_jlog_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'jlog' has no attribute 'Jurnal'"):
        jlog.Jurnal  # noqa: B018


def test_jlog_kafka_without_its_client_says_what_to_install():
    program = "import sys; sys.modules['confluent_kafka'] = None; import jlog.kafka"
    done = python(program)
    assert (done.returncode, done.stderr.splitlines()[-1].partition(": ")[2]) == (
        1,
        "jlog.kafka needs confluent_kafka, which is not installed: pip install 'pyjlog[kafka]'",
    )
