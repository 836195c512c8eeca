"""`SentParts`: the parts of one upload that the store has, and what follows from them."""

from __future__ import annotations

from typing import Any

from asyncrec.errors import TransientStorageError

from .bucket import bare, is_encrypted
from .parts import Digest, is_md5, multipart_etag

__all__ = ["SentParts"]


class SentParts:
    """What the store has said of each part, by its number."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[str, Any]] = {}
        self._sizes: dict[int, int] = {}
        self._md5s: dict[int, str] = {}
        # Whether this store's ETags of parts are their MD5s, until one is seen that is not.
        self._plain = True

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, number: int) -> bool:
        return number in self._entries

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What completes the upload, in order."""
        return [self._entries[number] for number in sorted(self._entries)]

    @property
    def etag(self) -> str | None:
        """What the object's ETag will be, by the ETags of its parts; `None` where they are no MD5s."""
        return multipart_etag(bare(entry["ETag"]) for entry in self.entries)

    @property
    def certain(self) -> bool:
        """Whether `etag` follows from what we sent, not only from what the store said."""
        return self._plain and len(self._md5s) == len(self._entries)

    def judge(self, number: int, answer: dict[str, Any], digest: Digest, what: str) -> None:
        """Compare the ETag of an answer with the MD5 that was sent, which the store has compared, too.

        Where they differ, either its ETags are something else (it encrypts, or is of a mind of its own), or this answer
        is wrong, and a second one will be right.

        Raises:
            TransientStorageError: it may be the latter.
        """
        if digest.md5 is None:
            return
        etag = bare(answer["ETag"])
        if etag != digest.md5 and self._plain:
            self._plain = False
            if is_md5(etag) and not is_encrypted(answer):
                raise TransientStorageError(f"{what}: the answer's ETag is not the MD5 of what was sent")
        self._md5s[number] = digest.md5

    def add(self, number: int, entry: dict[str, Any], size: int) -> None:
        self._entries[number] = entry
        self._sizes[number] = size

    def correct(self, listed: dict[str, Any]) -> bool | None:
        """Take a part's ETag from a listing; whether it was another. `None` where it is a part of somebody else's."""
        number = listed["PartNumber"]
        entry = self._entries.get(number)
        if entry is None or listed.get("Size") != self._sizes[number]:
            return None
        wrong: bool = entry["ETag"] != listed["ETag"]
        entry["ETag"] = listed["ETag"]
        return wrong
