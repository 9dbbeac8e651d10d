"""Writers are killed again and again on real file systems: those that cannot reserve space too."""

import pytest

import jlog
from processes.units import check_units, values_of

pytestmark = pytest.mark.usefixtures("failpoints")

OPTIONS = {"precommit": 4 << 10, "segment_bytes": 32 << 10}
KILLED_AT = ["append.published", "close.written", "rotate.turned", "direct.written", "roll.renamed"]


@pytest.fixture(params=["tmpfs", "ext2", "ext3", "ext4"])
def path(request, mount):
    return mount(request.param, 8) / "j"


def test_records_of_killed_writers_are_there_on_any_file_system(spawn, path):
    """Each is taken over from by one that lives, in the middle of a block."""
    other, units = spawn(), []
    other.call("open_writer", "other", str(path), OPTIONS)
    for turn, point in enumerate(KILLED_AT * 2):
        victim = spawn()
        victim.call("open_writer", f"v{turn}", str(path), {})
        victim.call("open_writer", "direct", str(path), {"precommit": 0})
        victim.call("append", f"v{turn}", 5, 100)
        victim.call("sync", f"v{turn}")
        victim.call("append", f"v{turn}", 5, 100)
        victim.call("arm", f"{point}=kill@2")
        victim.dies("work", f"v{turn}", 30, "direct")
        other.call("append", "other", 5, 100)
        other.call("sync", "other")
        units += victim.acknowledged
    check_units(path, units + other.acknowledged)
    other.kill()
    with jlog.Writer(path) as writer:
        writer.extend(values_of("last", 0, 4))
        writer.sync()
    assert jlog.Journal(path).verify().ok
