"""A file system for fsspec that counts what is read through it. It is on this machine, but is not taken for that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem


class Counting(LocalFileSystem):
    protocol = "counting"
    listings = 0
    requests = 0  # without the listings
    bytes_read = 0
    lacking = 0  # the next range or file lacks so many bytes

    @classmethod
    def reset(cls) -> None:
        cls.listings = cls.requests = cls.bytes_read = cls.lacking = 0

    @classmethod
    def _count(cls, size: int) -> None:
        cls.requests += 1
        cls.bytes_read += size

    def ls(self, path: str, detail: bool = False, **more: Any) -> Any:
        type(self).listings += 1
        return super().ls(path, detail, **more)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        content: bytes = super().cat_file(path, start, end, **more)
        content = content[: len(content) - type(self).lacking]
        type(self).lacking = 0
        self._count(len(content))
        return content

    def get_file(self, path: str, target: str, **more: Any) -> None:
        self._count(self.size(path))
        super().get_file(path, target, **more)
        if type(self).lacking:
            os.truncate(target, os.path.getsize(target) - type(self).lacking)
            type(self).lacking = 0


@pytest.fixture
def counting() -> Iterator[type[Counting]]:
    """`counting:///path` is a file for it."""
    fsspec.register_implementation("counting", Counting, clobber=True)
    Counting.reset()
    yield Counting
    Counting.reset()
