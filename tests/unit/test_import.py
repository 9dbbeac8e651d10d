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


def test_a_task_of_spark_reads_without_pandas(path):
    """Each of Spark's Python processes would take 0.3 s for that import."""
    with jlog.Writer(path) as writer:
        writer.extend([b"a", b"b"])
    program = """
        import sys
        from pyspark.sql.types import StructType
        import jlog
        from jlog.spark.reading.columns import OutputColumns
        from jlog.spark.reading.scan import BATCH_RECORDS, _sequences

        with jlog.Reader(sys.argv[1]) as reader:
            batches = [next(reader.record_batches()), *_sequences(7, 2 * BATCH_RECORDS, [(8, 9)])]
        for schema in (StructType().add("sequence", "long").add("journal", "string"), StructType()):
            for batch in batches:
                print(OutputColumns(schema).exactly(batch, "näme").slice(0, 2).to_pylist())
        print("pandas" in sys.modules)
    """
    done = python(program, path)
    read = [0, 1], [7], [9, 10], [32777, 32778]
    rows = [[{"sequence": number, "journal": "näme"} for number in numbers] for numbers in read]
    counted = [[{}] * len(batch) for batch in rows]
    assert (done.stdout.splitlines(), done.stderr) == ([*map(str, rows + counted), "False"], "")


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
