"""An archiving process is killed: nothing is removed that is not archived, no half file is read, and the next one goes on."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from itertools import count

import pytest

import jlog
from behaviour.journals import fill, read_away, value_of, values
from elsewhere import python
from patience import HUNG_SECONDS

RECORDS = 21
CLEAN = "import sys, jlog; jlog.Journal(sys.argv[1]).clean()"


def make(path, url, size=0):
    """Two sealed segments and an open one, all of it read."""
    options = {
        "precommit": 4 << 10,
        "segment_bytes": 16 << 20,
    }  # so that each of the large ones is in a block of its own
    with jlog.Writer(path, **options, retention=jlog.Retention(archive=url)) as writer:
        for number in range(2):
            fill(writer, 10)
            if size:
                writer.append(random.Random(number).randbytes(size))
            writer.roll()
        fill(writer, 1)
    read_away(path, "billing")


def clean(path, *, code=CLEAN, **environment):
    return python(code, path, **environment).returncode


def everything(path):
    with jlog.Reader(path, archive=True) as reader:
        return list(reader.values())


def check_all_is_there(path, url, expected):
    """After the kill, and once the next one has gone on."""
    assert everything(path) == expected
    jlog.Journal(path).clean()
    assert everything(path) == expected
    archive = jlog.archive.Archive(url)
    assert (len(archive.segments()), archive.verify()) == (2, [])
    assert len(jlog.Journal(path).segments()) == 1
    assert values(url) == expected[:-1]


@pytest.mark.usefixtures("failpoints")
def test_killed_at_any_step_the_next_one_goes_on(tmp_path):
    for visit in count(1):
        path, url = tmp_path / f"j{visit}", (tmp_path / f"a{visit}").as_uri()
        make(path, url)
        code = clean(path, JLOG_FAILPOINTS=f"file.sync_directory=kill@{visit}")
        assert code in (0, -signal.SIGKILL)
        check_all_is_there(path, url, [value_of(number) for number in range(RECORDS)])
        if code == 0:
            break
    assert visit > 8


def test_half_a_copy_of_a_killed_process_is_never_read(tmp_path):
    path, url = tmp_path / "j", (tmp_path / "a").as_uri()
    make(path, url, size=100_000)
    expected = everything(path)
    # The kernel kills it as the file grows beyond that.
    limited = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL);"
    limited += "resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000));"
    assert clean(path, code=limited + CLEAN) == -signal.SIGXFSZ
    assert list((tmp_path / "a").rglob("*.part"))
    check_all_is_there(path, url, expected)
    assert not list((tmp_path / "a").rglob("*.part"))


@contextmanager
def killing_at(port, amount, victim):
    """A port that leads to this one, and kills the process once so many bytes have been sent through it."""
    sent = 0

    def carry(source, target, counts):
        nonlocal sent
        try:
            while piece := source.recv(1 << 16):
                sent += len(piece) * counts
                if sent > amount:
                    victim().kill()
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one of the two is gone

    def serve(listener, open_sockets):
        while True:
            try:
                ours, _ = listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(("127.0.0.1", port))
            open_sockets += [ours, theirs]
            for pair in ((ours, theirs, True), (theirs, ours, False)):
                threading.Thread(target=carry, args=pair, daemon=True).start()

    open_sockets = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=serve, args=(listener, open_sockets), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in open_sockets:
                each.close()


@pytest.mark.xdist_group("s3")
def test_a_killed_upload_leaves_no_object(tmp_path, s3):
    path, url = tmp_path / "j", f"{s3}/{tmp_path.name}"
    make(path, url, size=2_000_000)
    expected = everything(path)
    server = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    children = []
    with killing_at(server, 1_000_000, lambda: children[0]) as port:
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        children.append(subprocess.Popen([sys.executable, "-c", CLEAN, str(path)], env=environment))
        assert children[0].wait(HUNG_SECONDS) == -signal.SIGKILL
    assert jlog.Journal(path).first_sequence == 0
    with pytest.raises(jlog.JournalNotFound):
        jlog.Reader(url)
    check_all_is_there(path, url, expected)
