"""The counts of a flow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FlowStats:
    """The counts of a flow since it was created."""

    records: int = 0  # records of the source, in committed transactions
    bytes: int = 0  # bytes of their values
    transactions: int = 0
    aborted: int = 0
    refused: int = 0  # records that were left out, or put with the dead letters
    missing: int = 0  # records that retention removed before they were read, and that were passed over
    retries: int = 0
    last_error: str = ""
