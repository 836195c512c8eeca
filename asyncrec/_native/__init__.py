"""What is hot, small and closed, in C: `native` is the module, or `None` where there was no compiler.

This is the one place that chooses. Whoever has a function in C beside one in Python asks ``if native is not None``,
and the tests run both. ``crc32c.c``, ``frames.c`` and so on each have one subject; ``native.h`` has what they share.
"""

from __future__ import annotations

try:
    from asyncrec._native import _c as native
except ImportError:
    native = None  # type: ignore[assignment]  # whoever uses it asks first

__all__ = ["native"]
