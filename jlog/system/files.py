"""Files of a journal: created exclusively, never through a link, and written as a whole or not at all.

Several users may share a journal, so that any of them can put a symbolic link into its directory, under a name that another one
is about to use. No file of a journal is a link: the code follows none, and makes each file anew, relative to the descriptor of
its directory. pyx/system/file.h does the same for the core.

Others may also rename, remove or replace the directory itself. So an object that has a journal open knows it by a HeldPath.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import BinaryIO, Concatenate, ParamSpec, TypeVar

from jlog._core.system.file import OpenFile
from jlog.errors import CorruptJournal, JournalClosed, JournalError, JournalMoved

NO_FILE = "it is not a regular file"
_NO_FILE_ERRORS = (errno.EISDIR, errno.ENXIO, errno.ENODEV)  # errors of open() for such a file
P = ParamSpec("P")
T = TypeVar("T")


class HeldPath(str):
    """The path of a directory that stays open, to be used like any path of a directory. The files that file_in() names below it
    are opened, renamed and removed relative to the descriptor, so that they are this directory's, whatever has the path by now.

    identity: device and inode, which nothing else gets as long as the directory is open.
    """

    __slots__ = ("_opened", "identity")
    identity: tuple[int, int]
    _opened: OpenFile

    def __new__(cls, path: str) -> HeldPath:  # noqa: PYI034
        held = super().__new__(cls, path)
        held._opened = open_directory(path)
        held.identity = _identity(os.fstat(held._opened.fd))
        return held

    def descriptor(self) -> int:
        """Returns the descriptor. Raises JournalClosed after close(), and where the program has closed it itself."""
        if self._opened.is_own():
            return self._opened.fd
        raise descriptors_closed(self)

    def check(self) -> None:
        """Raises JournalMoved where the path does not lead to this directory any more."""
        try:
            found = os.stat(self)
        except (FileNotFoundError, NotADirectoryError):
            there = "nothing"
        except OSError:
            return  # this process may have lost the right to look: that says nothing about the directory
        else:
            if _identity(found) == self.identity:
                return
            there = "another journal" if os.path.exists(os.path.join(self, "journal.meta")) else "something else"
        raise JournalMoved(
            f"{self} does not lead to the journal any more that was opened there: {self._fate()}, and {there} is at the path "
            "now. Close every object that has the journal open, and open it again where it is to be"
        )

    def _fate(self) -> str:
        fd = self.descriptor()
        if os.fstat(fd).st_nlink == 0:
            return "its directory was removed, with the records in it"
        with suppress(OSError):
            return f"its directory is {os.readlink(f'/proc/self/fd/{fd}')} now"
        return "its directory was moved"

    def __reduce_ex__(self, _: object) -> tuple[type[str], tuple[str]]:
        """Copies and pickles as a plain path: the descriptor has one owner, which closes it."""
        return str, (str(self),)

    def close(self) -> None:
        """Closes the descriptor. A second call does nothing."""
        self._opened.close()


def descriptors_closed(path: str) -> JournalClosed:
    """Returns the error for a descriptor that is not that of this file any more."""
    return JournalClosed(
        f"{path} is not open any more: this object was closed, or the program has closed descriptors that it did not open, as "
        "os.closerange() does; close this object, and open the journal again"
    )


class HeldFile(str):
    """The path of a file below a HeldPath, as file_in() makes it."""

    __slots__ = ("directory", "name")
    directory: HeldPath
    name: str

    def __reduce_ex__(self, _: object) -> tuple[type[str], tuple[str]]:
        """Copies and pickles as a plain path, as a HeldPath does."""
        return str, (str(self),)


def file_in(directory: str, name: str) -> str:
    """Returns the path of a file in this directory. Below a HeldPath the functions of this module, and the core's, use it
    relative to the descriptor."""
    path = os.path.join(directory, name)
    if isinstance(directory, HeldFile):
        name = os.path.join(directory.name, name)
        directory = directory.directory
    if not isinstance(directory, HeldPath):
        return path
    file = HeldFile(path)
    file.directory, file.name = directory, name
    return file


def directory_of(path: str) -> str:
    """Returns the directory of a file that file_in() has named."""
    return path.directory if isinstance(path, HeldFile) else os.path.dirname(path)


def place_of(path: str) -> tuple[str, int | None]:
    """Returns name and dir_fd by which system calls reach the file, or the directory itself."""
    if isinstance(path, HeldPath):
        return ".", path.descriptor()
    return (path.name, path.directory.descriptor()) if isinstance(path, HeldFile) else (path, None)


def stat_file(path: str) -> os.stat_result:
    """Returns what os.stat() says of a file that file_in() has named."""
    name, directory = place_of(path)
    try:
        return os.stat(name, dir_fd=directory)
    except OSError as error:
        name_error(error, path)
        raise


def remove_file(path: str) -> None:
    """Removes a file that file_in() has named. Raises FileNotFoundError where it is missing."""
    name, directory = place_of(path)
    with naming(path):
        os.unlink(name, dir_fd=directory)


def names_in(path: str) -> list[str]:
    """Lists the names of all entries of a directory."""
    with Directory(path) as directory:
        return directory.names()


def regular_files(path: str) -> list[str]:
    """Lists the names of the regular files in a directory; a link to one counts."""
    with naming(path), Directory(path) as directory, os.scandir(directory.fd) as entries:
        return [entry.name for entry in entries if _is_regular(entry)]


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a circle of links
        return False


def is_there(path: str) -> bool:
    """Says whether something has this path. Every other error than that nothing has it is raised."""
    try:
        stat_file(path)
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def open_file(path: str, flags: int = os.O_RDONLY) -> OpenFile:
    """Opens an existing file. Raises JournalError where it is a symbolic link, and CorruptJournal where it is not a regular
    file."""
    name, directory = place_of(path)
    return _open(name, flags, directory, path)


def open_stream(path: str) -> BinaryIO:
    """Opens an existing file for reading as open() does, with the refusals of open_file()."""
    return open(path, "rb", opener=open_file(path).hand_over)


def read_small(path: str, most: int) -> bytes:
    """Returns the content of a file, in memory. Raises CorruptJournal where it has more than `most` bytes."""
    with naming(path), open_stream(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CorruptJournal(path, most, f"it has more than {most} bytes, the most that such a file may have")
    return content


def open_segment(path: str) -> OpenFile:
    """Opens a segment as open_file() does. Where nobody else can write to the directory, a link in it is this user's own, as in
    the local copy of an archived segment, and is followed."""
    try:
        return open_file(path)
    except CorruptJournal:
        raise
    except JournalError:
        found = stat_file(directory_of(path))
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise
        name, directory = place_of(path)
        return _regular(OpenFile(name, os.O_RDONLY | os.O_NONBLOCK, directory), path)


def open_or_create(path: str) -> OpenFile:
    """Opens a file for reading and writing. Several processes may call this at the same time: one of them creates the file."""
    while True:
        with suppress(FileNotFoundError):
            return open_file(path, os.O_RDWR)
        with suppress(FileExistsError):
            return open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def open_directory(path: str) -> OpenFile:
    """Opens a directory. The path may lead through links."""
    name, directory = place_of(path)
    try:
        return OpenFile(name, os.O_RDONLY | os.O_DIRECTORY, directory)
    except OSError as error:
        name_error(error, path)
        raise


def sync_file(path: str) -> None:
    """Makes the content of any file, or the entries of a directory, survive a power loss."""
    with OpenFile(path, os.O_RDONLY) as file:
        os.fsync(file.fd)


def sync_files(paths: Iterable[str], *, missing_ok: bool = False) -> None:
    """Syncs each of these files, as sync_file() does. missing_ok: files that do not exist are left out."""
    for path in paths:
        with suppress(FileNotFoundError) if missing_ok else nullcontext():
            sync_file(path)


def share(fd: int, directory: int) -> None:
    """Gives a file of the journal the owner, the group and the permissions of the directory, as far as this user may, so that
    several users can share a journal, and root's commands lock no service out. Both arguments are descriptors: a path might
    lead to another file by now."""
    wanted, found = os.fstat(directory), os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink != 1:
        return  # a file with a second name may belong to no journal
    mode = wanted.st_mode & (0o7777 if stat.S_ISDIR(found.st_mode) else 0o666)
    try:
        if found.st_uid != wanted.st_uid and os.geteuid() == 0:
            os.fchown(fd, wanted.st_uid, wanted.st_gid)
        elif found.st_gid != wanted.st_gid:
            os.fchown(fd, -1, wanted.st_gid)
        if found.st_mode & 0o7777 != mode:
            os.fchmod(fd, mode)
    except PermissionError:
        return  # another user's file: it was shared when it was created


def read_whole(fd: int, size: int, at: int) -> bytes:
    """Reads so many bytes, fewer only where the file ends."""
    content = os.pread(fd, size, at)
    while content and len(content) < size:
        more = os.pread(fd, size - len(content), at + len(content))
        if not more:
            break
        content += more
    return content


def write_whole(fd: int, content: bytes, at: int) -> None:
    """Writes all of the content, or raises OSError: then any part of it may be in the file."""
    left = memoryview(content)
    while left:
        written = os.pwrite(fd, left, at)
        if written == 0:
            raise OSError(errno.EIO, "the file system accepted no more bytes and gave no reason")
        left, at = left[written:], at + written


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Names the file in an error of a call that knows only a descriptor."""
    try:
        yield
    except OSError as error:
        name_error(error, path)
        raise


def name_error(error: OSError, path: str) -> None:
    """Names the file in the error, if it names none."""
    if not isinstance(error.filename, str) or not os.path.isabs(error.filename):
        error.filename = str(path)  # a HeldPath would stay open as long as the error


def naming_its_path(call: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Decorates a function whose first argument is a path: an error that names no file gets that path."""

    @functools.wraps(call)
    def named(path: str, /, *arguments: P.args, **options: P.kwargs) -> T:
        with naming(path):
            return call(path, *arguments, **options)

    return named


def has_more_entries(path: str, few: int) -> bool:
    """Says whether a directory has more than so many entries. It reads no more of them than it must."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return sum(1 for _ in itertools.islice(entries, few + 1)) > few
    return False


class Directory:
    """The directory at `path`, or one below it, with its descriptor. The ones below are never links. make=True makes those that
    are missing, shared as the one at `path` is."""

    def __init__(self, path: str, *names: str, make: bool = False) -> None:
        self.path: str = path
        self._opened = self._top = open_directory(path)
        try:
            for name in names:
                self._enter(name, make=make)
        except BaseException:
            self.close()
            raise

    def _enter(self, name: str, *, make: bool) -> None:
        below = file_in(self.path, name)
        if make:
            with suppress(FileExistsError), naming(below):
                os.mkdir(name, dir_fd=self.fd)
        self._opened, self.path = _open(name, os.O_RDONLY | os.O_DIRECTORY, self.fd, below), below
        if make:
            share(self.fd, self._top.fd)

    @property
    def fd(self) -> int:
        """The descriptor; -1 where it is closed."""
        return self._opened.fd

    def close(self) -> None:
        """Closes the descriptors. A second call does nothing."""
        self._opened.close()
        self._top.close()

    def __enter__(self) -> Directory:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> list[str]:
        """Lists the names of all entries."""
        with naming(self.path):
            return os.listdir(self.fd)

    def free_name(self, name: str) -> str:
        """Returns this name if it is free, else a free one with a number after it."""
        there, free, number = set(self.names()), name, 1
        while free in there:
            number += 1
            free = f"{name}.{number}"
        return free

    def open(self, name: str, flags: int = os.O_RDONLY) -> OpenFile:
        return _open(name, flags, self.fd, os.path.join(self.path, name))

    def create(self, name: str) -> OpenFile:
        """Creates a new file. Raises FileExistsError where the name is taken."""
        file = self.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        share(file.fd, self._top.fd)
        return file

    def remove(self, name: str) -> None:
        """Removes the file; of a link the link itself, and not the file that it names."""
        with suppress(FileNotFoundError), naming(os.path.join(self.path, name)):
            os.unlink(name, dir_fd=self.fd)

    def make(self, name: str, write: Callable[[int], object], temporary: str | None = None, *, sync: bool = True) -> None:
        """Does what make_file() says, in this directory."""
        with self.made(name, temporary, sync=sync) as fd:
            write(fd)

    @contextmanager
    def made(self, name: str, temporary: str | None = None, *, sync: bool = True) -> Iterator[int]:
        """Yields the descriptor of a new file, to be written. After the context the file is synced, and has its name; the entry
        of the directory is not synced yet. Nothing is left of it where the context raises.

        A file that has the name already is removed first: under a `temporary` name it was left by a process that died. With a
            `temporary` name, the new file takes its own name once it is whole, and replaces the file that has it.
        """
        begun = name if temporary is None else temporary
        self.remove(begun)
        file = self.create(begun)
        try:
            with naming(os.path.join(self.path, begun)):
                with file:
                    yield file.fd
                    if sync:
                        os.fsync(file.fd)
                if begun != name:
                    os.rename(begun, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            # The same error may prevent this; the next file of this name removes it.
            with suppress(OSError):
                self.remove(begun)
            raise


def make_file(path: str, write: Callable[[int], object], temporary: str | None = None, *, sync: bool = True) -> None:
    """Creates a file with what `write` puts into its descriptor, as Directory.made() does. Compiled code has no `with`:
    Cython's ends the process where there is no memory for a traceback."""
    with Directory(directory_of(path)) as directory:
        directory.make(os.path.basename(path), write, temporary, sync=sync)


def _open(name: str, flags: int, directory: int | None, path: str) -> OpenFile:
    # Opening a pipe, or a device, must not wait.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        file = OpenFile(name, flags, directory)
        return file if flags & os.O_DIRECTORY else _regular(file, path)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, *_NO_FILE_ERRORS):
            error.filename = str(path)
            raise
        raise open_error(error.errno or 0, path) from None


def _regular(file: OpenFile, path: str) -> OpenFile:
    if stat.S_ISREG(os.fstat(file.fd).st_mode):
        return file
    file.close()
    raise CorruptJournal(path, 0, NO_FILE)


def open_error(number: int, path: str) -> Exception:
    """Returns the exception for a failed open() with the errno `number`."""
    if number in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
        return JournalError(
            f"{path} is a symbolic link, and no file of a journal is one: nothing is read or written through it; remove the "
            "link, or put the file itself in its place"
        )
    if number in _NO_FILE_ERRORS:
        return CorruptJournal(path, 0, NO_FILE)
    return OSError(number, os.strerror(number), str(path))
