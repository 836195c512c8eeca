"""`Version`: what a server says of an object, by which one version of it is told from another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import parse_http_date

__all__ = ["Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """One version.

    Attributes:
        etag: as the server sends it; ``""`` if it has none, or one that is not printable ASCII: no request can say it.
        modified: the header, as it was sent; ``""`` if there is none, or it is not printable ASCII.
        size: bytes; `None` where it is not said.
    """

    etag: str
    modified: str
    size: int | None

    @classmethod
    def of(cls, headers: Mapping[str, str], size: int | None) -> Version:
        return cls(_validator(headers, "ETag"), _validator(headers, "Last-Modified"), size)

    @property
    def condition(self) -> str:
        """The value of ``If-Range``, or ``""``: a weak tag is none, and a date only where there is no tag."""
        if self.etag:
            return "" if self.etag.startswith("W/") else self.etag
        return self.modified

    def contradicts(self, other: Version) -> bool:
        """Whether what both say differs. Answers may leave out what others have."""
        pairs = ((self.etag, other.etag), (self.size, other.size))
        if any(mine not in ("", None) and yours not in ("", None) and mine != yours for mine, yours in pairs):
            return True
        # The servers behind one address may disagree about the second that a file with one tag was copied to them.
        tagged = bool(self.etag and other.etag)
        return not tagged and bool(self.modified and other.modified) and self.modified != other.modified

    def info(self, key: str) -> ObjectInfo:
        """Make what asyncrec knows of an object. Where there is no tag, the date and the size have to do."""
        assert self.size is not None, "asked for before"
        etag = self.etag or f"{self.modified}/{self.size}"
        modified = parse_http_date(self.modified) or datetime.fromtimestamp(0, UTC)  # it says as much
        return ObjectInfo(key, self.size, etag, None, modified)


def _validator(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "").strip()
    return value if value.isascii() and value.isprintable() else ""
