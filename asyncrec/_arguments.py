"""Parse size arguments such as 67108864, ``"64MiB"`` and ``"1 GB"``, and limit ages. This module does no I/O."""

from __future__ import annotations

import operator
import re
from typing import TypeAlias

from asyncrec.errors import ArgumentTypeError, ArgumentValueError

Size: TypeAlias = "int | str"
"""A number of bytes, or text such as ``"64MiB"`` (k, M, G and T are powers of 1000; Ki, Mi, Gi and Ti, of 1024)."""

_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?) ?([kmgt]i?)?b?", re.IGNORECASE)
_POWERS = " kmgt"


# A century, in seconds. Times that far in the past or future can still be computed and written.
MOST_SECONDS = 36_525 * 86_400.0


def check_age(seconds: float, name: str) -> None:
    """Raise ValueError if ``seconds`` is longer than a century. ``name`` is the argument's name."""
    if not seconds <= MOST_SECONDS:
        raise ArgumentValueError(f"{name}={seconds}: must be at most {MOST_SECONDS:.0f} seconds, a century")


def byte_count(value: Size | float, name: str) -> int:
    """Return a size in bytes. ``name`` is the argument's name, for error messages.

    Raises:
        ValueError: ``value`` is text that is not a size, or a float that is not a whole number.
        TypeError: ``value`` is neither a number nor text.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None or (match[2] is None and "." in match[1]):
            raise ArgumentValueError(f"{name}={value!r}: {_WRITE}")
        unit = (match[2] or " ").lower()
        factor: int = (1024 if unit.endswith("i") else 1000) ** _POWERS.index(unit[0])
        return int(match[1]) * factor if match[1].isdigit() else int(float(match[1]) * factor)
    if isinstance(value, float):
        if not value.is_integer():
            raise ArgumentValueError(f"{name}={value!r}: {_WRITE}")
        return int(value)
    if isinstance(value, bool):
        raise ArgumentTypeError(f"{name}={value!r}: {_WRITE}")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} is a {type(value).__name__}: {_WRITE}") from None


def record_limit(max_record_bytes: Size) -> int:
    """Return the argument ``max_record_bytes`` in bytes.

    Raises:
        ValueError, TypeError: as for `byte_count`. Also ValueError if the size is negative.
    """
    most = byte_count(max_record_bytes, "max_record_bytes")
    if most < 0:
        raise ArgumentValueError(f"max_record_bytes={max_record_bytes!r}: must be at least 0")
    return most


_WRITE = "must be a number of bytes, or text such as '64MiB' (64 times 2**20) or '64M' (64 times 10**6)"
