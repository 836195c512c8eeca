"""The libraries that compress and decompress: isal if possible, otherwise zlib.

isal (igzip) has a level 2 that reaches zlib's usual ratio at some eight times its speed, and writes what any inflater
reads. What isal lacks goes to zlib: the levels 0 and 4 to 9, memory levels and strategies; and everything if isal
cannot be imported.
"""

from __future__ import annotations

import zlib
from typing import Any

from asyncrec._framing.compression.options import GZIP_CONTAINER, CompressionOptions

try:
    from isal import isal_zlib

    _isal: Any = isal_zlib
except ImportError:  # no build of it for this platform
    _isal = None

_ISAL_LEVELS = (1, 2, 3)  # isal also has a 0, but it compresses; zlib's 0 stores, and that is what 0 is asked for
_ISAL_DEFAULT = 2
_TENSORFLOW_MEM_LEVEL = 9

# What either library raises for data that does not decompress.
DEFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error,) if _isal is None else (zlib.error, _isal.error)


def compressobj(options: CompressionOptions) -> Any:
    """Return a compressor of isal's or zlib's, for one member or stream."""
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
    """Return a decompressor of isal's or zlib's, for one member of GZIP or one stream of ZLIB."""
    return (_isal or zlib).decompressobj(zlib.MAX_WBITS + (GZIP_CONTAINER if type == "GZIP" else 0))
