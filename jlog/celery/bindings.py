"""The types of exchanges and their bindings to queues, which all processes share: a file for each, below `exchanges/`."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Binding = tuple[str, str, str]  # routing key, pattern, queue

OF_TEMPORARY = ".temporary"  # suffix of the binding of a temporary queue, which ends with the queue


class Bindings:
    """Bindings come and go as a whole, by one rename or unlink each, so that no process needs a lock for them."""

    def __init__(self, directory: Path, exists: Callable[[str], bool]) -> None:
        self._directory = directory
        self._exists = exists  # tells whether there is a queue of this name

    def _of(self, exchange: str) -> Path:
        return self._directory / hashlib.sha256(exchange.encode()).hexdigest()[:32]

    def _file(self, exchange: str, binding: Binding, suffix: str = "") -> Path:
        return self._of(exchange) / (hashlib.sha256(json.dumps(binding).encode()).hexdigest()[:32] + suffix)

    def add(self, exchange: str, binding: Binding, *, temporary: bool) -> None:
        _write(self._file(exchange, binding, OF_TEMPORARY if temporary else ""), json.dumps(binding))

    def remove(self, exchange: str, binding: Binding) -> None:
        for suffix in ("", OF_TEMPORARY):
            self._file(exchange, binding, suffix).unlink(missing_ok=True)

    def set_type(self, exchange: str, kind: str) -> None:
        _write(self._of(exchange) / "exchange.type", kind)

    def type_of(self, exchange: str) -> str | None:
        with suppress(FileNotFoundError):
            return (self._of(exchange) / "exchange.type").read_text()
        return None

    def table(self, exchange: str) -> list[Binding]:
        """Returns the bindings of the exchange. Those of temporary queues that are gone are removed."""
        bindings: list[Binding] = []
        with suppress(FileNotFoundError):
            for file in sorted(self._of(exchange).iterdir()):
                if file.suffix in ("", OF_TEMPORARY):
                    with suppress(FileNotFoundError):  # removed since it was listed
                        key, pattern, queue = json.loads(file.read_text())
                        if file.suffix == "" or self._exists(queue):
                            bindings.append((key, pattern, queue))
                        else:
                            file.unlink()
        return bindings


def _write(file: Path, text: str) -> None:
    """Creates the file as a whole, unless it exists. Any number of threads and processes, also of containers that count their
    processes apart, may do so at once."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{uuid.uuid4().hex}.new")
    unfinished.write_text(text)
    unfinished.rename(file)
