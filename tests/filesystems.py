"""Small file systems of their own, which nobody else sees and which go with this process."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGES = ("ext2", "ext3", "ext4")  # in a file that a loop device makes a disk
CLONE_NEWNS = 0x00020000


FAST_BYTES = 3 << 30  # more than the tests that run at the same time hold together


def fast_disk() -> str | None:
    """A directory in memory, for what does not depend on the disk and would keep it busy; None, which is the usual place,
    where there is none that is large enough."""
    large = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free >= FAST_BYTES
    return "/dev/shm" if large else None


class CannotMount(Exception):
    """This machine does not let this user mount that; the message says what it needs."""


@contextmanager
def mounted(kind: str, megabytes: float) -> Iterator[Path]:
    """Mounts an empty file system of this kind ("tmpfs" or one of IMAGES) and size; yields its root.

    This thread, and the processes that it starts from now on, are the only ones that see it. It is unmounted at the end,
    or when the last of these processes is gone.
    """
    _enter_a_namespace()
    folder = Path(tempfile.mkdtemp(prefix=f"jlog-{kind}-"))
    root = folder / "root"
    root.mkdir()
    try:
        if kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={int(megabytes * 1024)}k", "tmpfs", str(root))
        else:
            _mount_image(kind, folder / "image", int(megabytes * (1 << 20)), root)
        try:
            yield root
        finally:
            # Lazily: a process that has a file open keeps nothing but its own view of it.
            _run("umount", "--lazy", str(root))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _enter_a_namespace() -> None:
    """Once a process: what is mounted from now on is not seen outside, and ends with it at the latest."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise CannotMount(f"a mount namespace: {os.strerror(ctypes.get_errno())}; run as root")
    _run("mount", "--make-rprivate", "/")


def _mount_image(kind: str, image: Path, size: int, root: Path) -> None:
    assert kind in IMAGES, kind
    mkfs = shutil.which(f"mkfs.{kind}", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if mkfs is None:
        raise CannotMount(f"there is no mkfs.{kind}; apt-get install e2fsprogs")
    if not Path("/dev/loop-control").exists():
        raise CannotMount("there are no loop devices; modprobe loop, or give the container /dev/loop*")
    with open(image, "wb") as file:
        file.truncate(size)
    _run(mkfs, "-q", "-F", "-b", "1024", "-m", "0", str(image))
    _run("mount", "-t", kind, "-o", "loop", str(image), str(root))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise CannotMount(f"there is no {command[0]}; apt-get install mount") from None
    if done.returncode != 0:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}; run as root, with loop devices")
