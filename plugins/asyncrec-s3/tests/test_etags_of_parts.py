"""An ETag that is not the MD5 of the sent data counts as an error at first, and then as the store's convention."""

from __future__ import annotations

import hashlib

import pytest
from asyncrec_s3.parts import Digest
from asyncrec_s3.upload import SentParts

from asyncrec.errors import TransientStorageError


def test_foreign_etag_repeats_part_only_once() -> None:
    sent, digest = SentParts(), Digest(b"some bytes", "md5")
    assert digest.md5 == hashlib.md5(b"some bytes").hexdigest()
    other = {"ETag": f'"{hashlib.md5(b"others").hexdigest()}"'}
    with pytest.raises(TransientStorageError, match="not the MD5"):
        sent.judge(1, other, digest, "write")
    for number in (1, 2):
        sent.judge(number, other, digest, "write")
    assert not sent.certain
