"""An archived segment as a small journal of its own while it is read, so that the code that reads journals reads it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from jlog._core.format.dual_slot import BoundsFile
from jlog._core.system.lock import LockFile
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.store import ArchiveFolder
from jlog.errors import CorruptJournal
from jlog.storage.meta import Meta


class LocalCopy:
    """A directory below TMPDIR with the segment, or with a link to it where the archive is on this machine. It is removed by
    close(), with the object, or with the process."""

    def __init__(self, folder: ArchiveFolder, segment: ArchivedSegment) -> None:
        import tempfile  # few programs need it

        self.segment = segment
        self.meta = Meta(bytes.fromhex(segment.uuid), [])
        self.path = tempfile.mkdtemp(prefix="jlog-archive-")
        self._discard = weakref.finalize(self, _discard, self.path, os.getpid())
        try:
            folder.fetch(segment.name, os.path.join(self.path, segment.name))
            self._bound()
        except BaseException:
            self.close()
            raise

    def _bound(self) -> None:
        """Writes down where the segment begins and ends: nothing inside a segment says that it is the last one."""
        uuid, path = self.meta.uuid, os.path.join(self.path, "bounds")
        end = (self.segment.first_sequence, self.segment.size_bytes, self.segment.end_sequence)
        BoundsFile.create(path, uuid, self.segment.end_sequence, end)
        lock_file = LockFile(os.path.join(self.path, "lock"), create=True)
        bounds = BoundsFile(path, uuid, lock_file)
        try:
            bounds.update(first_sequence=self.segment.first_sequence, mark=end)
        finally:
            bounds.close()
            lock_file.close()

    @contextmanager
    def naming_the_archive(self) -> Iterator[None]:
        """Names the archive's file in the error of a damage that is found here."""
        try:
            yield
        except CorruptJournal as error:
            raise CorruptJournal(self.segment.path, error.offset, error.reason) from None

    def close(self) -> None:
        self._discard()

    def __enter__(self) -> LocalCopy:  # noqa: PYI034
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _discard(path: str, process: int) -> None:
    if process == os.getpid():  # a forked child must leave the directory of the parent
        import shutil

        shutil.rmtree(path, ignore_errors=True)
