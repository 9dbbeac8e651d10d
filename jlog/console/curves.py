"""Curves of the last hour, as SVG within a page."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING

from jlog.console.samples import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKETS = 240  # each has the greatest value of its time, so that no peak is lost
LEAST_SECONDS = 60.0
HEIGHT = 100


def line(points: Sequence[tuple[float, float]], now: float | None = None) -> str:
    """Returns values, each at its time of the monotonic clock, as a line from the first of them until now."""
    span = seconds_of(points, now)
    since = (time.monotonic() if now is None else now) - span
    buckets: dict[int, float] = {}
    for at, value in points:
        bucket = int((at - since) * BUCKETS / span)
        if 0 <= bucket <= BUCKETS:
            buckets[bucket] = max(value, buckets.get(bucket, 0.0))
    top = max(buckets.values(), default=0.0) or 1.0
    places = [f"{bucket},{HEIGHT - value / top * (HEIGHT - 4) - 2:.1f}" for bucket, value in sorted(buckets.items())]
    if len(places) == 1:
        places.append(f"{BUCKETS},{places[0].partition(',')[2]}")
    path = f'<path d="M{" L".join(places)}"/>' if places else ""
    return f'<svg viewBox="0 0 {BUCKETS} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{path}</svg>'


def seconds_of(points: Sequence[tuple[float, float]], now: float | None = None) -> float:
    """Returns how long ago a curve begins: an hour ago, or where its first value is later than that."""
    age = (time.monotonic() if now is None else now) - points[0][0] if points else 0.0
    return min(max(age, LEAST_SECONDS), HOUR_SECONDS)


def curve(title: str, points: Sequence[tuple[float, float]], unit: str) -> str:
    values = [value for _, value in points]
    now = f"{values[-1]:,.0f}{unit}" if values else "not known yet"
    most = f"at most {max(values):,.0f}{unit}" if values else ""
    return (
        f"<figure><figcaption><b>{escape(title)}</b> <span>now {now}</span></figcaption>{line(points)}"
        f"<small><span>{seconds_of(points) / 60:.0f} min ago</span><span>{most}</span><span>now</span></small></figure>"
    )
