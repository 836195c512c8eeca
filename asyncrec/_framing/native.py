"""`native`: the functions of ``_native.c``, or `None` where no compiler was at hand when asyncrec was installed."""

from __future__ import annotations

try:
    from asyncrec._framing import _native as native
except ImportError:
    native = None  # type: ignore[assignment]  # whoever uses it asks first

__all__ = ["native"]
