"""Conversion between bytes and records, without I/O. All other layers build on this one.

    crc          the checksum, of one buffer and of many lengths at once
    frames       records <-> frames; encoding also finds the borders of the frames in one block
    compression  the byte stream <-> GZIP in members, or one ZLIB stream
    salvage      a damaged stream -> its intact records; `salvage.members` does this for a damaged GZIP or ZLIB file
    damage       the ranges of a file that were lost

Nothing here opens files, waits or logs. Compression and the checksums of large records release the GIL, and are called
from worker threads. Positions count bytes of the decompressed stream unless stated otherwise.
"""
