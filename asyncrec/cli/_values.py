"""Functions that convert the text of options to the arguments of tools."""

from __future__ import annotations

import json
import re
from typing import Any

from asyncrec._arguments import MOST_SECONDS, byte_count
from asyncrec.cli._standard import STANDARD, StandardStreams
from asyncrec.errors import ArgumentValueError, UsageError

_VALUE = re.compile(r'true|false|null|-?(0|[1-9]\d*)(\.\d+)?|"[^"\\\\]*"')
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_options(given: list[str] | None) -> dict[str, Any] | None:
    """Return options such as ``["region=eu", "max_concurrency=8"]`` as a dict.

    Numbers, true, false and null are converted to Python values. A value in quotation marks is always text.
    """
    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            # The message must not contain the text, which may be a misplaced secret.
            raise UsageError("--storage-option must be KEY=VALUE, such as --storage-option region=eu-west-1")
        options[name.replace("-", "_")] = json.loads(value) if _VALUE.fullmatch(value) else value
    return options or None


def opened(path: str, given: list[str] | None, max_record_bytes: str | None = None) -> dict[str, Any]:
    """Return a tool's arguments for the storage of ``path`` and the maximum size of records. ``-`` means stdin."""
    limit = {} if max_record_bytes is None else {"max_record_bytes": parse_size(max_record_bytes)}
    if path == STANDARD:
        return {"storage": StandardStreams(), **limit}
    return {"storage_options": parse_options(given), **limit}


def opened_target(target: str, given: list[str] | None) -> dict[str, Any]:
    """Return a tool's arguments for the storage of its target. ``-`` means stdout."""
    return {f"target_{name}": value for name, value in opened(target, given).items()}


def stores(
    source: str, given: list[str] | None, target: str, for_target: list[str] | None, max_record_bytes: str | None = None
) -> dict[str, Any]:
    """Return a tool's arguments for the storages of its source and target.

    Raises:
        UsageError: the target is stdout, but the command may write several objects, or prints its report to stdout.
    """
    if target == STANDARD:
        raise UsageError(
            "this command cannot write to standard output (filter, sample, merge, dedupe and convert can); pass a path"
        )
    return {**opened(source, given, max_record_bytes), **opened_target(target, for_target)}


def parse_compression(text: str) -> Any:
    """Return the library's name for a compression, given in upper or lower case. ``"keep"`` is not changed."""
    lower = text.lower()
    return lower if lower == "keep" else "" if lower == "none" else lower.upper()


def parse_size(text: str | None) -> int | None:
    """Return a size such as ``"64MiB"``, ``"64M"`` or ``"1000"`` in bytes. M means 10^6, and Mi means 2^20."""
    if text is None:
        return None
    try:
        return byte_count(text, "")
    except ArgumentValueError:
        raise UsageError(f"{text!r} is not a size; write it as 1000, 64M (10^6) or 1.5GiB (2^30)") from None


def parse_duration(text: str) -> float:
    """Return a duration such as ``"90s"``, ``"15m"``, ``"12h"``, ``"1d"`` or ``"2w"`` in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a duration; write it as 90s, 15m, 12h, 1d or 2w")
    seconds = float(match[1]) * _SECONDS[match[2].lower()]
    if seconds > MOST_SECONDS:
        raise UsageError(f"{text!r} is longer than a century; the longest duration is {MOST_SECONDS / 86400:.0f}d")
    return seconds
