"""The clock and times as records have them: microseconds since 1970."""

import time
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def now_us() -> int:
    return time.time_ns() // 1000


def time_of(timestamp_us: int | None) -> datetime | None:
    return None if timestamp_us is None else EPOCH + timedelta(microseconds=timestamp_us)
