"""Reading goes from segment to segment by name; only a gap, which changes the next name, costs a listing of the directory."""

from pathlib import Path

import pytest

import jlog
from elsewhere import run_python

LISTED = """
    import sys
    listings = []
    sys.addaudithook(lambda event, _: event == "os.scandir" and listings.append(event))

    def listings_of(path, segments):
        with jlog.Reader(path) as reader:
            del listings[:]
            assert [record.sequence for record in reader] == list(range(segments)), segments
            return len(listings)
"""


def write(path: Path, segments: int) -> None:
    with jlog.Writer(path, segment_bytes=4 << 10) as writer:
        for number in range(segments):
            writer.append(b"%d" % number)
            writer.roll()


@pytest.mark.parametrize("open_elsewhere", [False, True], ids=["closed", "open"])
def test_reading_a_thousand_segments_lists_the_directory_as_often_as_reading_ten(tmp_path: Path, open_elsewhere: bool) -> None:
    write(tmp_path / "few", 10)
    write(tmp_path / "many", 1000)
    opened = [jlog.Writer(tmp_path / name) for name in ("few", "many") if open_elsewhere]
    few, many = str(tmp_path / "few"), str(tmp_path / "many")
    run_python(f"{LISTED}\n    assert listings_of({few!r}, 10) == listings_of({many!r}, 1000) <= 3, listings")
    for writer in opened:
        writer.close()
