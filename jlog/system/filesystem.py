"""The places where a journal may lie: a path, and for writers a local file system, where all processes share a mapped file and
its locks."""

from __future__ import annotations

import os
import re
import warnings

from jlog.errors import JournalError

EMPTY = "an empty path names no journal; write the path of its directory, or . for the working directory"
OVERRIDE = "JLOG_ALLOW_ANY_FILE_SYSTEM"
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # the form of blanks and the like in mountinfo
LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs",
        "ubifs", "vfat", "xfs", "zfs",
    }
)  # fmt: skip


def is_url(path: object) -> bool:
    return isinstance(path, str) and _URL.match(path) is not None


def path_of_file(url: str, rest: str) -> str:
    """Returns the path that a file: URL names; `rest` is the part after the scheme. Raises ValueError for a URL that names
    none."""
    from urllib.parse import unquote_to_bytes  # slow to import, and most programs name a path

    # urllib.parse.urlsplit would drop tabs and newlines, which a path may have.
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise ValueError(
                f"{url!r} names the host {host!r}, but a journal must be on this host; write file:///absolute/path or "
                "file:relative/path"
            )
        rest = slash + path
    if "?" in rest or "#" in rest:
        raise ValueError(f"{url!r} has a query or a fragment; in a path, write ? as %3F and # as %23")
    if _BAD_ESCAPE.search(rest):
        raise ValueError(f"{url!r} has a % without two hexadecimal digits; write % as %25")
    path = os.fsdecode(unquote_to_bytes(os.fsencode(rest)))
    if not path or "\0" in path:
        raise ValueError(
            f"{url!r} has {'a zero byte in its' if path else 'no'} path; write file:///absolute/path or file:relative/path"
        )
    return path


def journal_path(path: str | os.PathLike[str], name: str = "path") -> str:
    """Returns the absolute path. Raises JournalError for a URL, which would become the name of a directory, ValueError for an
    empty path, which would become the working directory, and TypeError for what is not a path. name: of the argument."""
    if is_url(path) or (isinstance(path, str) and path.lower().startswith("file:/")):
        raise JournalError(
            f"{path} is a URL, but this takes the path of a directory; jlog.open_writer, jlog.open_reader and "
            "jlog.open_journal take URLs of journals and Kafka topics, jlog.Reader and jlog.archive.Archive those of archives"
        )
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str or a path such as pathlib's, not {path!r}")
    if not text:
        raise ValueError(EMPTY if name == "path" else f"{name}: {EMPTY}")
    if "\0" in text:
        raise ValueError(f"{name} has a null byte, which no path has: {text!r}")
    return os.path.abspath(text)


def type_of(path: str) -> str:
    """Returns the type of the file system that `path` lies on, as the kernel names it; "" where that is not known."""
    device = os.stat(path).st_dev
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    real = os.fsencode(os.path.realpath(path))
    found, length = b"", -1
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            for line in file:
                fields, _, rest = line.partition(b" - ")
                _, _, number, _, mount = fields.split()[:5]
                mount = _ESCAPED.sub(lambda escaped: bytes([int(escaped[1], 8)]), mount)
                under = real == mount or real.startswith(mount.rstrip(b"/") + b"/")
                # btrfs shows another device number than stat() does: then the longest mount point above decides.
                if under and (number == wanted, len(mount)) >= (False, length):
                    found, length = rest.split()[0], len(mount)
    except OSError:
        return ""
    return found.decode()


def check_local(path: str) -> None:
    """Raises JournalError where a mapped file may not be the same for all writers."""
    name = type_of(path)
    if not name or name in LOCAL:
        return
    message = f"{path} lies on {name}, where several processes cannot safely share a mapped file and its locks"
    if os.environ.get(OVERRIDE):
        warnings.warn(f"{message}; {OVERRIDE} is set, so it is used all the same", stacklevel=2)
        return
    raise JournalError(f"{message}; put the journal on a local file system, or set {OVERRIDE}=1 if you know better")
