"""The libraries that compress and decompress: isal if it is installed, otherwise zlib.

Level 2 of isal (igzip) reaches zlib's usual ratio at about eight times the speed, and its output can be read by any
inflater. zlib is used for options that isal does not support (levels 0 and 4 to 9, memory levels and strategies), and
for everything if isal cannot be imported.
"""

from __future__ import annotations

import zlib
from typing import Any

from asyncrec._framing.compression.options import GZIP_CONTAINER, CompressionOptions

try:
    from isal import isal_zlib

    _isal: Any = isal_zlib
except ImportError:  # isal is not built for this platform
    _isal = None

_ISAL_LEVELS = (1, 2, 3)  # isal's level 0 compresses, but callers expect zlib's level 0, which only stores
_ISAL_DEFAULT = 2
_TENSORFLOW_MEM_LEVEL = 9

# The errors that the libraries raise for data that cannot be decompressed.
DEFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error,) if _isal is None else (zlib.error, _isal.error)


def compressobj(options: CompressionOptions) -> Any:
    """Return a compressor from isal or zlib, for one member or stream."""
    window = (options.window_bits or zlib.MAX_WBITS) + (GZIP_CONTAINER if options.type == "GZIP" else 0)
    default = options.level is None or options.level == -1
    plain = options.mem_level is None and options.strategy is None
    if _isal is not None and plain and (default or options.level in _ISAL_LEVELS):
        return _isal.compressobj(_ISAL_DEFAULT if default else options.level, zlib.DEFLATED, window)
    return zlib.compressobj(
        -1 if options.level is None else options.level,
        zlib.DEFLATED,
        window,
        options.mem_level or _TENSORFLOW_MEM_LEVEL,
        options.strategy or zlib.Z_DEFAULT_STRATEGY,
    )


def decompressobj(type: str) -> Any:
    """Return a decompressor from isal or zlib, for one GZIP member or ZLIB stream."""
    return (_isal or zlib).decompressobj(zlib.MAX_WBITS + (GZIP_CONTAINER if type == "GZIP" else 0))
