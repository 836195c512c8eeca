"""Small TFRecord files as bytes, written by TensorFlow 2.21.0 (`tf.io.TFRecordWriter`), with their records.

Writing `RECORDS` uncompressed must produce exactly the bytes of `PLAIN`. The bytes of `GZIP` and `ZLIB` depend on the
compressor and its level, so decode them rather than comparing bytes.
"""

from __future__ import annotations

__all__ = ["GZIP", "PLAIN", "RECORDS", "ZLIB"]

RECORDS = (b"", b"a", b"TFRecord", bytes(range(16)), bytes(64))

PLAIN = bytes.fromhex(
    """
    000000000000000029039807d8ea82a201000000000000000175de4161786ee4280800000000000000ff86240f544652
    65636f72648d199601100000000000000095fbfe18000102030405060708090a0b0c0d0e0f6a9e5ab440000000000000
    002817f49500000000000000000000000000000000000000000000000000000000000000000000000000000000000000
    00000000000000000000000000000000000000000069f25079
    """
)

GZIP = bytes.fromhex(
    """
    1f8b0800000000000003636080004de619ec375e352d6284f2194bef392656e43dd1e0800afc6f53e10f710b4a4dce2f
    4ae9959cc62800159ffafb9f04032313330b2b1b3b072717370f2f1f7fd6bca82d0e50790df12f53192804999f022a01
    b6aaf9caa9000000
    """
)

ZLIB = bytes.fromhex(
    """
    789c636080004de619ec375e352d6284f2194bef392656e43dd1e0800afc6f53e10f710b4a4dce2f4ae9959cc6280015
    9ffafb9f04032313330b2b1b3b072717370f2f1f7fd6bca82d0e50790df12f53192804999f022a01bf0b1701
    """
)
