"""Which of asyncrec's inner loops run in C here: all of them, or none if it was installed without a compiler.

Both ways give the same results; the tests run both. ``asyncrec doctor`` prints what is found here.
"""

from __future__ import annotations

from asyncrec._native import native

__all__ = ["CRC32C", "FUNCTIONS"]

FUNCTIONS: tuple[str, ...] = ()
"""The names of the functions that are in C, in alphabetical order; empty if asyncrec is pure Python."""

CRC32C: str = "package"
"""How CRC-32C is computed: by the instructions of the processor, ``"sse4.2"`` or ``"armv8"``, or by ``"tables"`` in C,
whichever was found at run time; or by the ``"package"`` crc32c if asyncrec is pure Python."""

if native is not None:
    FUNCTIONS = tuple(sorted(name for name in dir(native) if not name.startswith(("_", "crc32c_", "crc64nvme_"))))
    CRC32C = native.crc32c_path()
