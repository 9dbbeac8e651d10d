"""The table at the end of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jlog.demo.sources import Input
    from jlog.demo.subscriber import Account


@dataclass
class Facts:
    started: float = 0.0
    written: float = 0.0
    delivered: float = 0.0
    kills: int = 0
    to_be_redelivered: int = 0
    replayed: int = 0
    segments_made: int = 0
    segments_removed: int = 0
    stored_part: float = 1.0


def table(source: Input, facts: Facts, accounts: Mapping[str, Account], digests: int) -> Table:
    found = Table(title="jlog demo", show_header=False, title_justify="left", min_width=60)
    found.add_column(style="bold")
    found.add_column()
    megabytes = source.size_bytes / 1e6
    writing, reading = facts.written - facts.started, facts.delivered - facts.started
    found.add_row("records", f"{source.lines:,} ({megabytes:,.1f} MB of values), each appended by itself")
    found.add_row("written", _rate(source.lines, megabytes, writing) + ", processes started and killed included")
    deliveries = len(accounts) * source.lines
    found.add_row(
        "delivered",
        _rate(deliveries, len(accounts) * megabytes, reading) + f", to {len(accounts)} subscribers",
    )
    lags = ", ".join(f"{name} {account.lag_max:,}" for name, account in accounts.items())
    found.add_row("lag", f"at most {lags} records; 0 at the end")
    found.add_row(
        "segments", f"{facts.segments_made} created, {facts.segments_removed} removed once both subscribers had read them"
    )
    found.add_row("compression", f"blocks take {facts.stored_part:.0%} of the bytes of their records")
    found.add_row("kills", f"{facts.kills} survived; {facts.to_be_redelivered:,} uncommitted records delivered again")
    found.add_row("rewind", f"{facts.replayed:,} records read once more, the same")
    found.add_row(
        "proof",
        f"every acknowledged line reached {' and '.join(accounts)}, in order; only those that the killed subscriber had not "
        f"committed came twice. Each file was compared with the input by SHA-256 (large files in parts: {digests:,} digests)",
    )
    return found


def _rate(records: int, megabytes: float, seconds: float) -> str:
    return f"{records / seconds:,.0f} records/s, {megabytes / seconds:,.1f} MB/s"
