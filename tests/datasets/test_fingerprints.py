from __future__ import annotations

import hashlib

from asyncrec._datasets.shuffling.shuffler import Fingerprints


def digest(number: int) -> bytes:
    return hashlib.md5(b"%d" % number).digest()


def test_fingerprints_contain_exactly_added_digests() -> None:
    known = Fingerprints(10_000)
    for number in range(10_000):
        known.add(digest(number))
        known.add(digest(number))
    assert all(digest(number) in known for number in range(10_000))
    assert not any(digest(number) in known for number in range(10_000, 30_000))


def test_fingerprints_keep_first_digests_up_to_capacity() -> None:
    known = Fingerprints(100)
    for number in range(1000):
        known.add(digest(number))
    assert [digest(number) in known for number in range(1000)] == [True] * 100 + [False] * 900


def test_fingerprints_distinguish_digests_sharing_slot() -> None:
    known = Fingerprints(4)
    alike = [bytes([2 * number]) + bytes(15) for number in range(5)]
    for each in alike[:4]:
        known.add(each)
    assert [each in known for each in alike] == [True] * 4 + [False]


def test_fingerprints_with_zero_capacity_keep_no_digest() -> None:
    known = Fingerprints(0)
    known.add(digest(1))
    assert digest(1) not in known
