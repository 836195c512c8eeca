"""The C version of what is hot, small and closed: `native` is the module, or `None` if there was no compiler.

This is the one place that chooses. Callers of a function that is also in C check ``if native is not None``, and the
tests run both. ``crc32c.c``, ``frames.c`` and so on each have one subject; ``native.h`` has what they share.
"""

from __future__ import annotations

try:
    from asyncrec._native import _c as native
except ImportError:
    native = None  # type: ignore[assignment]  # callers check for it

__all__ = ["native"]
