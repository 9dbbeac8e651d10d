"""Formats numbers in few characters, for columns side by side."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3600, 86_400


def count(number: float | None) -> str:
    """Formats 1234567 in full, and larger numbers as 12.3M: at most 7 characters and a sign."""
    if number is None:
        return "-"
    number = round(number)
    return str(number) if abs(number) < 10_000_000 else scaled(number)


def counted(number: int, thing: str) -> str:
    """Formats 1 record, 2 records."""
    return f"{number} {thing}" + "s" * (number != 1)


def rate(number: float | None) -> str:
    """Formats a rate in at most 6 characters: 0, 0.5, 1234, 12.3k."""
    if number is None:
        return "-"
    if 0 < number < 10:
        return f"{number:.1f}"
    return str(round(number)) if number < 10_000 else scaled(number)


def change(number: float | None) -> str:
    """Formats a change with its sign: +1234, -12.3k, 0."""
    if number is None:
        return "-"
    if round(number, 1) == 0:
        return "0"
    return ("+" if number > 0 else "-") + rate(abs(number))


def scaled(number: float) -> str:
    """Formats a number in powers of 1000: 12.3k."""
    units = iter("kMGTPE")
    unit = next(units)
    number /= 1000
    while abs(number) >= 999.95:
        number, unit = number / 1000, next(units)
    return f"{number:.1f}{unit}"


def human_bytes(size: int) -> str:
    """Formats 1536 as 1.5 KiB."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 4)
    return f"{size / (1 << 10 * power):.1f} {' KMGT'[power]}iB"


def size(number: float | None) -> str:
    """Formats bytes without blanks: 1.5KiB."""
    return "-" if number is None else human_bytes(round(number)).replace(" ", "")


def span(seconds: float | None) -> str:
    """Formats a duration in at most 6 characters: 0.4s, 59s, 3m05s, 2h13m, 5d04h, 400d."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02}m"
    if whole < 100 * DAY:
        return f"{whole // DAY}d{whole % DAY // HOUR:02}h"
    return f"{whole // DAY}d"
