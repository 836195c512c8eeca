"""Of everything that is published it is asked, in one way, whether the store has what was sent."""

from __future__ import annotations

from asyncrec.errors import IntegrityError
from asyncrec.storage._base import ObjectInfo


def check_sent(path: str, published: ObjectInfo | None, *, size: int, crc32c: int | None, then: str) -> None:
    """Hold what a sink says it has published at ``path`` against what went into it; ``then`` says what becomes of it.

    Raises:
        IntegrityError: it is something else.
    """
    assert published is not None, "a sink that exits cleanly has published"
    known = published.crc32c is not None and crc32c is not None
    if published.size != size or (known and published.crc32c != crc32c):
        sent, stored = (f" (crc32c {each:08x})" if each is not None else "" for each in (crc32c, published.crc32c))
        raise IntegrityError(f"{path}: sent {size:,} bytes{sent}, the store has {published.size:,}{stored}; {then}")
