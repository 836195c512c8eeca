"""Bytes become records, and records bytes, without I/O: the layer everything else stands on.

    crc          the checksum, of one buffer and of many lengths at once
    frames       records <-> frames; borders where those in one block begin
    compression  the byte stream <-> GZIP in members, or one ZLIB stream
    salvage      a damaged stream -> the records that are whole; members the same of a damaged GZIP or ZLIB file
    damage       what was lost of it, and where

Pure and synchronous: nothing here opens, waits or logs. Compression and the checksums of large records give up the GIL,
and are called from worker threads. Positions count bytes of the decompressed stream unless they say otherwise.
"""
