"""Human-readable formatting of numbers, sizes and times. This module does no I/O."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def count(many: int, what: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as ``1 record`` or ``2,000 records``."""
    return f"{many:,} {what if many == 1 else plural or what + 's'}"


def record(number: int) -> str:
    """Return the name of a record, with its number among all records unless that is unknown (negative)."""
    return f"record {number:,}" if number >= 0 else "a record"


def size(many: float) -> str:
    """Return a size in bytes with three digits, such as ``1,023 B``, ``1.50 KiB`` or ``256 MiB``."""
    if many < 1024:
        return f"{many:,.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        many /= 1024
        if many < 1000 or unit == "PiB":
            break
    return f"{many:,.{0 if many >= 100 else 1 if many >= 10 else 2}f} {unit}"


def amount(many: float) -> str:
    """Return a count in short form, such as ``950``, ``12.3k`` or ``1.2M``."""
    for unit, times in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if many >= times * 10 or (unit != "k" and many >= times):
            scaled = many / times
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}".replace(".0", "")
    return f"{many:,.0f}"


def number(value: float) -> str:
    """Return an integer, or a number with about four significant digits, such as ``3``, ``0.1235`` or ``1,234.5``."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        whole = int(value)
        return f"{whole:,}" if abs(whole) < 10**15 else f"{value:.3e}"
    if not math.isfinite(value):
        return str(value)
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(part: float, whole: float) -> str:
    """Return a percentage. A share above 0 is never shown as 0 %, and a share below 100 % never as 100 %."""
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent >= 9.95 or percent.is_integer() else f"{percent:.1f} %"


def moment(text: str) -> str:
    """Return a time from a manifest in the form ``2026-11-21 03:20:15 UTC``. Return other text unchanged."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError):
        return text


def day(text: str) -> str:
    """Return the date of a time in the form ``21 November 2026``. Return other text unchanged."""
    try:
        then = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    return f"{then.day} {then:%B} {then.year}"


def span(seconds: float) -> str:
    """Return a duration in the largest suitable unit, such as ``41 seconds``, ``3 minutes`` or ``12 days``."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            return count(round(seconds / length), unit)
    return count(round(seconds), "second")
