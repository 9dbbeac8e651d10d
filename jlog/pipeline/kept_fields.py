"""The fields of a pipeline, kept in its checkpoint."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from jlog.pipeline.tables.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = re.compile(r"fields(?:-(\d+))?\.json")


class KeptFields:
    """A file for the first fields, and another one for each time that fields were added. No file is ever replaced, since not
    every file system can do that in one step."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._files = Files(spark)
        self._directory = directory

    def newest(self) -> StructType | None:
        """Returns the fields that were kept last; None where there are none yet."""
        number = self._number()
        text = None if number is None else self._files.read(self._path(number))
        return None if text is None else StructType.fromJson(json.loads(text))

    def keep(self, fields: StructType) -> None:
        """Keeps fields durably, in place of those before."""
        number = self._number()
        self._files.write(self._path(0 if number is None else number + 1), fields.json())

    def _number(self) -> int | None:
        found = (NAME.fullmatch(name) for name in self._files.names(self._directory))
        return max((int(name[1] or 0) for name in found if name is not None), default=None)

    def _path(self, number: int) -> str:
        return f"{self._directory}/fields{f'-{number}' if number else ''}.json"
