"""`Known`: what the answers of a store have shown of it, which all storages on one client share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncrec.errors import TransientStorageError

__all__ = ["Known"]


# AWS's, which compatible stores send, too; the second is moto's.
_REQUEST_IDS = ("x-amz-request-id", "x-amzn-requestid")
_NOT_FOUND = 404


class Known:
    """A store's habits. AWS's are known beforehand.

    Where two answers disagree, several programs answer for one endpoint, and the least that was seen holds.

    Attributes:
        crc32c: whether it compares the CRC32C of a body; `None` before that was seen.
        excludes_puts: whether it honours ``If-None-Match: *`` of a put; likewise.
        excludes_parts: whether it honours that of the completion of a multipart upload; Ceph 16 does not.
        numbers_requests: whether its answers have an id, by which those of a proxy are told from them.
    """

    def __init__(self, *, is_aws: bool) -> None:
        self._is_aws = is_aws
        self.crc32c: bool | None = True if is_aws else None
        self.excludes_puts: bool | None = True if is_aws else None
        self.excludes_parts: bool | None = True if is_aws else None
        self.numbers_requests = is_aws

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

    def learn_origin(self, answer: Mapping[str, Any]) -> None:
        """Take note of an answer that is the store's own, and says so."""
        self.numbers_requests = self.numbers_requests or _has_id(answer)

    def check_origin(self, answer: Mapping[str, Any], what: str) -> None:
        """Check who says that nothing is there: to HEAD, it is a status and no more.

        Raises:
            TransientStorageError: not the store, whose answers have an id.
        """
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if status == _NOT_FOUND and self.numbers_requests and not _has_id(answer):
            raise TransientStorageError(
                f"{what}: HTTP {status}, without the id that this store's answers have: something else has answered"
            )


def _has_id(answer: Mapping[str, Any]) -> bool:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return any(name in headers for name in _REQUEST_IDS)
