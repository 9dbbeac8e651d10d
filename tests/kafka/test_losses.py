"""Losses by retention, full disks and power losses are reported, never passed over in silence; nothing else is lost."""

from __future__ import annotations

import os

import pytest

import jlog
from crash.tampering import another_boot, newest_segment, zero
from elsewhere import mounted_by, run_python, small_disk
from jlog.kafka import Mirror, verify
from kafka.processes import fill
from kafka.witness import fields_of_journal, numbered


def test_retention_that_overtakes_a_mirror_is_reported(journal, url, witness, topic):
    """The report gives the range of sequences."""
    with jlog.Writer(journal, precommit=4 << 10, segment_bytes=4 << 10) as writer:
        writer.extend(numbered(100))
        Mirror(journal, url, until_end=True).run()
        jlog.Journal(journal).remove_subscriber(f"kafka:{topic}")
        writer.extend(numbered(100, 100))
        writer.roll()
        writer.extend(numbered(100, 200))
        with jlog.Reader(journal, "the only one", start="end") as reader:
            reader.commit()
        assert jlog.Journal(journal).first_sequence == 200
        with pytest.raises(jlog.PositionLost, match="records 100 to 199"):
            Mirror(journal, url, until_end=True).run()
        events = []
        stats = Mirror(journal, url, until_end=True, skip_missing=True, on_event=events.append).run()
    assert stats.missing == 100
    assert "records 100 to 199" in events[0]
    assert witness.values(topic) == numbered(100) + numbered(100, 200)


def test_a_capture_onto_a_full_disk_goes_on_when_there_is_space(tmp_path, broker, witness, topic):
    disk = tmp_path / "disk"
    disk.mkdir()
    witness.make(topic)
    witness.produce(topic, [b"%d " % n + bytes(1000) for n in range(5000)], transactions=500)
    run_python(
        f"""
        import oracle
        from jlog.kafka import Capture, verify
        url, path = "kafka://{broker.address}/{topic}", {str(disk)!r} + "/j"
        with open({str(disk)!r} + "/ballast", "wb") as ballast:
            ballast.write(bytes(4 << 20))
        try:
            Capture(url, path, until_end=True, segment_bytes=1 << 20).run()
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        else:
            raise AssertionError("the disk was not full")
        got = len(jlog.Journal(path))
        assert got < 5000, got
        os.unlink({str(disk)!r} + "/ballast")
        Capture(url, path, until_end=True).run()
        with jlog.Reader(path) as reader:
            assert [int(value.split()[0]) for value in reader.values()] == list(range(5000))
        assert verify(path, url).compared == 5000
        oracle.check_journal(path)
        """,
        within=mounted_by(small_disk(disk, "8m")),
    )


def test_a_journal_without_its_tail_has_lost_nothing_mirrored(spawn, journal, url, witness, topic):
    child = spawn()
    child.call("open_writer", "w", str(journal), {"precommit": 4 << 10})
    child.call("append", "w", 10, 100)
    Mirror(journal, url, until_end=True).run()  # syncs before it commits
    synced = jlog.Journal(journal).segments()[-1].size_bytes
    child.call("append", "w", 10, 100)
    child.kill()
    another_boot(journal)
    zero(journal / "precommit")
    os.truncate(newest_segment(journal), synced)
    with jlog.Writer(journal) as writer:
        assert writer.append(b"after") > 20
    assert Mirror(journal, url, until_end=True).run().records == 1
    assert len(witness.values(topic)) == 11
    assert witness.fields(topic)[-1:] == fields_of_journal(journal)  # the others have been removed by retention
    found = verify(journal, url)
    assert (found.ok, found.compared, found.gone) == (True, 1, 10)


def test_a_journal_that_was_set_back_stops_the_mirror(journal, url, witness, topic):
    """Sets the files back, as a file system that goes back to a snapshot does: the same files, with their earlier bytes."""
    fill(journal, 10)
    before = {path: path.read_bytes() for path in journal.rglob("*") if path.is_file()}
    fill(journal, 10, 10)
    Mirror(journal, url, until_end=True).run()
    for path in [path for path in journal.rglob("*") if path.is_file() and path not in before]:
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
    fill(journal, 1, 1000)
    with pytest.raises(jlog.JournalError, match="lost its tail") as caught:
        Mirror(journal, url, until_end=True).run()
    assert "SINK 11`" in str(caught.value)
    Mirror(journal, url).set_position(10)
    Mirror(journal, url, until_end=True).run()
    assert witness.values(topic) == [*numbered(20), b"1000"]


def test_an_older_copy_of_the_journal_stops_the_mirror(journal, url, tmp_path):
    import shutil

    fill(journal, 10)
    shutil.copytree(journal, tmp_path / "backup")
    fill(journal, 10, 10)
    Mirror(journal, url, until_end=True).run()
    shutil.rmtree(journal)
    shutil.move(tmp_path / "backup", journal)
    fill(journal, 100, 10)
    with pytest.raises(jlog.JournalError, match="older copy"):
        Mirror(journal, url, until_end=True).run()
