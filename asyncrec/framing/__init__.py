"""Bytes <-> records, without I/O: the layer everything else stands on.

    crc          the checksum, of one buffer and of many lengths at once
    frames       records <-> frames
    compression  the byte stream <-> GZIP in members, or one ZLIB stream

Pure and synchronous: nothing here opens, waits or logs. What takes long (compression, checksums and copies of megabytes)
gives up the GIL, and is called from worker threads. Positions count bytes of the decompressed stream unless they say
otherwise.
"""
