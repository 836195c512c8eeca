"""Whether a shard is still the version that a state refers to is determined from its store's metadata."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from asyncrec._sampling.shard_versions import is_version, packed_version
from asyncrec.storage._base import ObjectInfo

THEN = datetime(2026, 11, 22, 1, 2, 3, 456_789, UTC)
WHOLE_SECOND = THEN.replace(microsecond=0)
LATER = THEN.replace(hour=5)


def info(size: int = 9, etag: str = "a", crc32c: int | None = None, modified: datetime = THEN) -> ObjectInfo:
    return ObjectInfo(key="x", size=size, etag=etag, crc32c=crc32c, modified=modified)


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        (info(), info(), True),
        (info(), info(modified=LATER), True),
        (info(), info(size=8), False),
        (info(), info(etag="b", modified=LATER), False),
        (info(crc32c=1), info(crc32c=2), False),
        (info(crc32c=1), info(crc32c=1, etag="b", modified=LATER), True),
        # A checksum that only one of the stores has proves nothing, and does not mean that the shard was replaced.
        (info(crc32c=1), info(), True),
        (info(), info(crc32c=1), True),
        (info(crc32c=1), info(etag="b", modified=LATER), False),
        (info(), info(crc32c=1, etag="b", modified=LATER), False),
        # A copy that kept the modification time; a time in whole seconds may be equal by chance.
        (info(), info(etag="b"), True),
        (info(modified=WHOLE_SECOND), info(etag="b", modified=WHOLE_SECOND), False),
        (info(modified=WHOLE_SECOND), info(etag="b"), False),
    ],
)
def test_shard_identity_uses_checksum_then_etag_then_time(then: ObjectInfo, now: ObjectInfo, same: bool) -> None:
    assert is_version(json.loads(json.dumps(packed_version(then))), now) is same
