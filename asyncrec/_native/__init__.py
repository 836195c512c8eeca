"""C versions of small functions that take much of the time: `native` is the C module, or `None` if it was not built.

Only this module decides which version is used. Code that has both a C and a Python version checks ``if native is not
None``, and the tests run both. ``crc32c.c``, ``frames.c`` and so on each cover one subject; ``native.h`` contains what
they share.
"""

from __future__ import annotations

try:
    from asyncrec._native import _c as native
except ImportError:
    native = None  # type: ignore[assignment]  # callers check for it

__all__ = ["native"]
