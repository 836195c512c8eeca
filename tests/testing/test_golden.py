"""The golden bytes contain their records, according to a reader that shares no code with the package."""

from __future__ import annotations

import struct
import zlib

import crc32c

from asyncrec.testing import golden


def parse(data: bytes) -> tuple[bytes, ...]:
    def checksum(part: bytes) -> int:
        crc = crc32c.crc32c(part)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    records = []
    while data:
        length, length_crc = struct.unpack_from("<QI", data)
        assert checksum(data[:8]) == length_crc
        record = data[12 : 12 + length]
        assert checksum(record) == struct.unpack_from("<I", data, 12 + length)[0]
        records.append(record)
        data = data[16 + length :]
    return tuple(records)


def test_plain_file_contains_golden_records() -> None:
    assert parse(golden.PLAIN) == golden.RECORDS


def test_gzip_and_zlib_files_decompress_to_plain_bytes() -> None:
    assert zlib.decompress(golden.GZIP, wbits=31) == golden.PLAIN
    assert zlib.decompress(golden.ZLIB, wbits=15) == golden.PLAIN
