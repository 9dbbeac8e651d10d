"""Which file systems a journal may be written on."""

import os

import pytest

import jlog
from elsewhere import mounted_by, run_python
from jlog.system import filesystem
from jlog.system.filesystem import LOCAL, OVERRIDE, check_local, type_of


@pytest.fixture
def on(monkeypatch):
    monkeypatch.delenv(OVERRIDE, raising=False)
    return lambda name: monkeypatch.setattr(filesystem, "type_of", lambda path: name)


@pytest.mark.parametrize("name", sorted(LOCAL))
def test_local_ones_are_allowed(on, name, tmp_path):
    on(name)
    check_local(str(tmp_path))


@pytest.mark.parametrize("name", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "ceph", "lustre", "virtiofs"])
def test_others_are_refused_with_the_way_out(on, name, tmp_path):
    on(name)
    with pytest.raises(jlog.JournalError, match=f"{tmp_path}.*{name}.*local file system.*{OVERRIDE}=1"):
        check_local(str(tmp_path))


def test_the_way_out_warns(on, tmp_path, monkeypatch):
    on("nfs4")
    monkeypatch.setenv(OVERRIDE, "1")
    with pytest.warns(UserWarning, match="nfs4"):
        check_local(str(tmp_path))


def test_one_that_cannot_be_told_is_allowed(on, tmp_path):
    on("")
    check_local(str(tmp_path))


def test_a_writer_is_refused_there_and_a_reader_is_not(on, tmp_path):
    with jlog.Writer(tmp_path / "j") as writer:
        writer.append(b"value")
    on("nfs4")
    with pytest.raises(jlog.JournalError, match="nfs4"):
        jlog.Writer(tmp_path / "j")
    assert list(jlog.Reader(tmp_path / "j").values()) == [b"value"]


def test_the_kernels_own_are_told():
    assert type_of("/proc/self") == "proc"
    assert type_of("/sys") in ("sysfs", type_of("/"))
    assert type_of(os.getcwd()) or not type_of("/")  # in a chroot the kernel may not show the mount that it lies on


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "with space",
        "back\\slash",
        "größe",
    ],
)
def test_a_mount_under_any_name_is_found(tmp_path, name):
    (tmp_path / name).mkdir()
    code = f"""
from jlog.system.filesystem import type_of
path = {str(tmp_path / name)!r}
assert type_of(path) == "tmpfs", type_of(path)
os.mkdir(path + "/below")
assert type_of(path + "/below") == "tmpfs"
assert type_of(os.path.dirname(path)) != "tmpfs" or "tmpfs" == {type_of(str(tmp_path))!r}
"""
    run_python(code, within=mounted_by(f"mount -t tmpfs tmpfs '{tmp_path / name}'"))


def test_a_mount_elsewhere_whose_name_is_not_utf_8_harms_nobody(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    code = f"""
from jlog.system.filesystem import type_of
assert type_of({str(tmp_path)!r}) == {type_of(str(tmp_path))!r}
"""
    run_python(code, within=mounted_by(f"mount -t tmpfs tmpfs '{tmp_path}'/*"))
