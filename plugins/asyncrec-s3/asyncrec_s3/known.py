"""`Known`: what the answers of a store have shown of it, which all storages on one client share."""

from __future__ import annotations

__all__ = ["Known"]


class Known:
    """A store's habits. AWS's are known beforehand.

    Where two answers disagree, several programs answer for one endpoint, and the least that was seen holds.

    Attributes:
        crc32c: whether it compares the CRC32C of a body; `None` before that was seen.
        excludes_puts: whether it honours ``If-None-Match: *`` of a put; likewise.
        excludes_parts: whether it honours that of the completion of a multipart upload; Ceph 16 does not.
    """

    def __init__(self, *, is_aws: bool) -> None:
        self._is_aws = is_aws
        self.crc32c: bool | None = True if is_aws else None
        self.excludes_puts: bool | None = True if is_aws else None
        self.excludes_parts: bool | None = True if is_aws else None

    def learn_crc32c(self, compares: bool) -> None:
        """Take note of an answer with an echo of the CRC32C that was sent, or without."""
        if not self._is_aws and self.crc32c is not False:
            self.crc32c = compares

    def learn_exclusion(self, *, puts: bool | None = None, parts: bool | None = None) -> None:
        """Take note of what became of a condition."""
        if puts is not None and self.excludes_puts is not False:
            self.excludes_puts = puts
        if parts is not None and self.excludes_parts is not False:
            self.excludes_parts = parts
