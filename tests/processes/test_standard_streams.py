"""A process that was started without standard streams: what it prints gets into no file."""

import subprocess
import sys

import jlog
from patience import HUNG_SECONDS

PROGRAM = """
import os, sys

try:
    import jlog

    def low():
        found = []
        for fd in range(3):
            try:
                found.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                pass
        assert not any(name.startswith(path) for name in found), found
        for fd in range(3):
            try:
                os.write(fd, b"printed" * 1000)
            except OSError:
                pass

    path = sys.argv[1]
    with jlog.Writer(path, precommit=4096, segment_bytes=4096, sync="append",
                     retention=jlog.Retention(delete_read=False)) as writer:
        low()
        for turn in range(3):
            writer.extend([b"%d" % number for number in range(100)], state={b"turn": b"%d" % turn})
            writer.roll()
            low()
        with jlog.Reader(path, "billing") as reader:
            low()
            assert len(list(reader.read(1000))) == 300
            reader.commit()
            reader.checkpoint("nine")
            low()
        jlog.Journal(path).backup(path + ".copy")
        low()
    with open(path + "/bounds", "r+b") as file:
        file.write(bytes(4096))
    low()
    assert jlog.Journal(path).repair().ok
    low()
    assert jlog.Journal(path).verify().ok and jlog.Journal(path + ".copy").verify().ok
    said = "done"
except BaseException as error:
    import traceback
    said = traceback.format_exc()
with open(sys.argv[2], "w") as file:
    file.write(said)
"""


def test_no_descriptor_of_a_journal_is_a_standard_streams(tmp_path):
    path, said = tmp_path / "j", tmp_path / "said"
    (tmp_path / "program.py").write_text(PROGRAM)
    command = 'exec 0<&- 1>&- 2>&-; exec "$@"'
    subprocess.run(["sh", "-c", command, "sh", sys.executable, tmp_path / "program.py", path, said], timeout=HUNG_SECONDS)
    assert said.read_text() == "done"
    with jlog.Reader(path) as reader:
        assert [record.value for record in reader.read(1000)] == [b"%d" % number for number in range(100)] * 3
