"""What `import jlog` brings along."""

import subprocess
import sys

import pytest

# Libraries of the extras and of the command line, slow modules of the standard library, and rooms that most programs do
# without.
KEPT_OUT = """
click rich lz4 portalocker prometheus_client confluent_kafka pyspark pyarrow fsspec numpy pandas
asyncio multiprocessing concurrent.futures socket ssl subprocess tempfile urllib.parse http secrets hashlib shutil
jlog.repair.repair jlog.cli jlog.demo jlog.bench jlog.kafka jlog.spark jlog.metrics jlog.logging jlog.flow.engine jlog.arrow
jlog.reading.archived_records jlog.reading.event_loops jlog.reading.async_follow
"""


@pytest.fixture(scope="module")
def imported():
    program = "import sys; before = set(sys.modules); import jlog; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", KEPT_OUT.split())
def test_import_jlog_leaves_out(imported, name):
    assert name not in imported


def test_jlog_kafka_without_its_client_says_what_to_install():
    program = "import sys; sys.modules['confluent_kafka'] = None; import jlog.kafka"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1].partition(": ")[2]) == (
        1,
        "jlog.kafka needs confluent_kafka, which is not installed: pip install 'pyjlog[kafka]'",
    )
