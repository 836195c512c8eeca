"""`asyncrec._shards.writing.keys`: digests, and the set of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.writing.keys import NO_KEY, KeySet, key_digest, partition_of


def test_text_and_its_utf8_bytes_are_one_key() -> None:
    assert key_digest("é") == key_digest("é".encode())
    assert len(key_digest("")) == 16


def test_a_digest_stays_what_it_is_in_every_release() -> None:
    assert key_digest("https://example.invalid/").hex() == "512204c28b3313229955d150b39a0f67"
    assert [partition_of(value, 8) for value in ("os", b"os", "email", 7, "7")] == [7, 7, 4, 6, 6]


@given(st.lists(st.binary(max_size=3), max_size=80), st.lists(st.binary(max_size=3), max_size=40))
def test_it_holds_what_a_set_would(added: list[bytes], loaded: list[bytes]) -> None:
    found = KeySet()
    found.add_files([b"".join(key_digest(key) for key in loaded), NO_KEY * 3, b""])
    model = {key_digest(key) for key in loaded}
    assert len(found) == len(model)
    for key in added:
        digest = key_digest(key)
        assert found.add(digest) == (digest not in model)
        model.add(digest)
        assert digest in found
    assert len(found) == len(model)
    assert NO_KEY not in found


def test_digests_that_share_their_first_half_are_told_apart() -> None:
    found = KeySet()
    found.add_files([b"same....one....." + b"same....two....."])
    assert b"same....one....." in found
    assert b"same....two....." in found
    assert b"same....three..." not in found


def test_a_torn_file_of_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="no multiple of 16"):
        KeySet().add_files([b"x" * 17])
