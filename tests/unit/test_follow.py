"""A waiting reader looks for a record a few times before it sleeps, and more often only after one that came quickly."""

from pathlib import Path

import pytest

import jlog
from elsewhere import run_python

pytestmark = pytest.mark.usefixtures("failpoints")

ROUNDS, LOOKS = 50, 40
COUNTED = f'os.environ["JLOG_FAILPOINTS"] = "page.read=kill@{ROUNDS * LOOKS}"'  # it dies at this look


def test_an_idle_reader_sleeps_after_a_few_looks(tmp_path: Path) -> None:
    path = str(tmp_path / "j")
    with jlog.Writer(path):
        run_python(f"""
            reader = jlog.Reader({path!r})
            {COUNTED}
            for _ in range({ROUNDS}):
                assert next(reader.follow(timeout=0.01), None) is None
            """)


def test_a_reader_whose_records_come_quickly_looks_more_often(tmp_path: Path) -> None:
    run_python(f"""
        pid = os.fork()
        if pid == 0:
            writer, reader = jlog.Writer({str(tmp_path / "j")!r}), jlog.Reader({str(tmp_path / "j")!r})
            {COUNTED}
            for _ in range({ROUNDS}):
                records = reader.follow(timeout=0.01)
                writer.append(b"")
                assert next(records) is not None
                assert next(records, None) is None
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9
        """)
