"""The inner loops of asyncrec that run in C. If asyncrec was installed without a compiler, all of them run in Python.

Both versions return the same results, and the tests run both. ``asyncrec doctor`` prints the values of this module.
"""

from __future__ import annotations

from asyncrec._native import native

__all__ = ["CRC32C", "FUNCTIONS"]

FUNCTIONS: tuple[str, ...] = ()
"""The names of the functions in C, in alphabetical order; empty if asyncrec is pure Python."""

CRC32C: str = "package"
"""The implementation of CRC-32C: in C, ``"sse4.2"`` or ``"armv8"`` if the processor has these instructions, otherwise
``"tables"``; in pure Python, the ``"package"`` crc32c."""

if native is not None:
    FUNCTIONS = tuple(sorted(name for name in dir(native) if not name.startswith(("_", "crc32c_", "crc64nvme_"))))
    CRC32C = native.crc32c_path()
