"""The types of exchanges and their bindings to queues, which all processes share: a file for each, below `exchanges/`."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

Binding = tuple[str, str, str]  # routing key, pattern, queue


class Bindings:
    """Bindings come and go as a whole, by one rename or unlink each, so that no process needs a lock for them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _of(self, exchange: str) -> Path:
        return self._directory / hashlib.sha256(exchange.encode()).hexdigest()[:32]

    def _file(self, exchange: str, binding: Binding) -> Path:
        return self._of(exchange) / hashlib.sha256(json.dumps(binding).encode()).hexdigest()[:32]

    def add(self, exchange: str, binding: Binding) -> None:
        _write(self._file(exchange, binding), json.dumps(binding))

    def remove(self, exchange: str, binding: Binding) -> None:
        self._file(exchange, binding).unlink(missing_ok=True)

    def set_type(self, exchange: str, kind: str) -> None:
        _write(self._of(exchange) / "exchange.type", kind)

    def type_of(self, exchange: str) -> str | None:
        with suppress(FileNotFoundError):
            return (self._of(exchange) / "exchange.type").read_text()
        return None

    def table(self, exchange: str) -> list[Binding]:
        found: list[Binding] = []
        with suppress(FileNotFoundError):
            for file in sorted(self._of(exchange).iterdir()):
                if file.suffix == "":
                    with suppress(FileNotFoundError):  # removed since it was listed
                        key, pattern, queue = json.loads(file.read_text())
                        found.append((key, pattern, queue))
        return found


def _write(file: Path, text: str) -> None:
    """Creates the file as a whole, unless it exists."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}.new")
    unfinished.write_text(text)
    unfinished.rename(file)
