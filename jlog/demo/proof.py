"""Compares the lines that must have been delivered, which the input alone says, with those that were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jlog.demo.sources import Input, digest_of, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jlog.demo.subscriber import Chains


def expected_chains(source: Input) -> Chains:
    found = {}
    for piece in source.pieces:
        lines = lines_of(source.path, piece)
        found[piece.key] = digest_of(lines), len(lines)
    return found


def differences(expected: Chains, delivered: Chains) -> Iterator[str]:
    """Yields a line for every key whose lines were not delivered unchanged, each once and in order."""
    for key in sorted(expected.keys() | delivered.keys()):
        if key not in delivered:
            yield f"nothing of {key!r} was delivered"
        elif key not in expected:
            yield f"{key!r} was delivered and is not in the input"
        elif expected[key] != delivered[key]:
            wanted, given = expected[key][1], delivered[key][1]
            yield f"{key!r} has {wanted:,} lines, the {given:,} delivered differ from them"
