"""`crc64nvme`: the checksum that Azure compares, and S3 knows; for bodies of requests."""

from __future__ import annotations

from asyncrec._native import native
from asyncrec.storage._base import Buffer


def crc64nvme(data: Buffer) -> int | None:
    """The CRC-64/NVME of ``data``: in a twentieth of the time of an MD5 on x86-64, in two fifths elsewhere.

    `None` where asyncrec has no C: in Python it would take a hundred times as long, and an MD5 serves as well. It
    blocks, and lets go of the GIL.
    """
    return None if native is None else native.crc64nvme(data)
